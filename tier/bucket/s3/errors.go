package s3

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// verdict is what an error means.
type verdict struct {
	err     error // for the caller
	again   bool  // trying again may help
	slow    bool  // the store wants less traffic
	expired bool  // the credentials have expired; the request had no effect
}

// bodyError is a fault of the body that was to be sent, not of the store.
type bodyError struct {
	kind error
	err  error
}

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// judge turns the error of an attempt into a verdict.
func (s *Store) judge(r request, err error) verdict {
	mk := func(kind, cause error) error { return bucket.NewError(r.verb, r.key, kind, cause) }
	var known *bucket.Error
	var body *bodyError
	var creds *credentialsError
	var resp minio.ErrorResponse
	switch {
	case errors.As(err, &body):
		return verdict{err: mk(body.kind, body.err)}
	case errors.As(err, &known):
		return verdict{err: err, again: errors.Is(err, bucket.ErrUnavailable) || errors.Is(err, bucket.ErrCorrupt)}
	case errors.As(err, &creds):
		return verdict{err: mk(bucket.ErrDenied, creds)}
	case errors.As(err, &resp):
		return s.judgeResponse(r, resp, mk)
	}
	return s.judgeNetwork(err, mk)
}

func (s *Store) judgeNetwork(err error, mk func(kind, cause error) error) verdict {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the URL says nothing that the sentence doesn't
	}
	var unknownCA x509.UnknownAuthorityError
	var badHost x509.HostnameError
	var dns *net.DNSError
	cause := fmt.Errorf("%s cannot be reached: %w", s.endpoint, err)
	switch {
	case errors.As(err, &unknownCA) || errors.As(err, &badHost):
		return verdict{err: mk(bucket.ErrConfig, fmt.Errorf("the certificate of %s is not accepted: %w", s.endpoint, err))}
	case err.Error() == "http: server gave HTTP response to HTTPS client":
		return verdict{err: mk(bucket.ErrConfig, fmt.Errorf("%s speaks http, not https: put http:// into the endpoint", s.endpoint))}
	case errors.As(err, &dns) && dns.IsNotFound:
		cause = fmt.Errorf("the host name of %s is unknown: %w", s.endpoint, err)
	}
	return verdict{err: mk(bucket.ErrUnavailable, cause), again: true}
}

// judgeResponse goes by the code of the store's answer first, which is exact, then by its HTTP status.
func (s *Store) judgeResponse(r request, resp minio.ErrorResponse, mk func(kind, cause error) error) verdict {
	said := fmt.Errorf("%s says %s: %w", s.endpoint, resp.Code, resp)
	switch resp.Code {
	case "NoSuchBucket":
		return verdict{err: mk(bucket.ErrConfig, fmt.Errorf("there is no bucket %q at %s", s.bucket, s.endpoint))}
	case "NoSuchKey", "NoSuchObject":
		if r.once {
			return verdict{err: mk(bucket.ErrPrecondition, bucket.ErrNotFound)}
		}
		return verdict{err: mk(bucket.ErrNotFound, nil)}
	case "InvalidRange":
		return verdict{err: mk(bucket.ErrRange, nil)}
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled",
		"TooManyRequests", "ServiceUnavailable", "Busy":
		return verdict{err: mk(bucket.ErrUnavailable, said), slow: true}
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return verdict{err: mk(bucket.ErrDenied, fmt.Errorf("the credentials have expired: %w", resp)), expired: true}
	case "InvalidAccessKeyId", "InvalidToken", "InvalidClientTokenId", "XAdminUserNotFound":
		return verdict{err: mk(bucket.ErrDenied, fmt.Errorf("%s does not know the access key or token: %w", s.endpoint, resp))}
	case "SignatureDoesNotMatch":
		return verdict{err: mk(bucket.ErrDenied, fmt.Errorf("the secret key (or the region %s) is wrong: %w", s.region, resp))}
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "AuthorizationQueryParametersError", "IllegalLocationConstraintException":
		// With no region given, minio-go has learnt the right one from this answer and takes it the next time.
		return verdict{err: mk(bucket.ErrConfig, s.wrongRegion(resp)), again: s.region == ""}
	case "RequestTimeTooSkewed":
		return verdict{err: mk(bucket.ErrConfig, fmt.Errorf("the clocks of this machine and of %s differ too much: %w", s.endpoint, resp))}
	case "BadDigest", "XAmzContentChecksumMismatch", "InvalidDigest", "XAmzContentSHA256Mismatch":
		return verdict{err: mk(bucket.ErrCorrupt, said), again: true}
	case "InvalidBucketName":
		return verdict{err: mk(bucket.ErrConfig, said)}
	case "EntityTooLarge":
		return verdict{err: mk(bucket.ErrTooLarge, said)}
	case "ObjectParentIsFile", "XMinioParentIsObject", "ExistingObjectIsDirectory", "XMinioObjectExistsAsDirectory":
		// A file-system store also says so when a put and the removal of its empty folder meet.
		return verdict{err: mk(bucket.ErrKey, said), again: true}
	case "NotImplemented", "APINotSupported":
		return verdict{err: mk(bucket.ErrRefused, said)}
	}
	return s.judgeStatus(r, resp, said, mk)
}

func (s *Store) wrongRegion(resp minio.ErrorResponse) error {
	if resp.Region != "" && resp.Region != s.region {
		return fmt.Errorf("bucket %q is in region %s, not %s", s.bucket, resp.Region, s.region)
	}
	return fmt.Errorf("region %q is wrong for bucket %q: %w", s.region, s.bucket, resp)
}

func (s *Store) judgeStatus(r request, resp minio.ErrorResponse, said error, mk func(kind, cause error) error) verdict {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return verdict{err: mk(bucket.ErrConfig, s.wrongRegion(resp)), again: s.region == ""}
	case http.StatusForbidden, http.StatusUnauthorized:
		// MinIO denies a put for a moment while the last object of the same folder is deleted.
		return verdict{err: mk(bucket.ErrDenied, fmt.Errorf("the credentials may not do this: %w", said)), again: r.verb == bucket.VerbPut}
	case http.StatusNotFound:
		if r.verb == bucket.VerbList {
			return verdict{err: mk(bucket.ErrConfig, said)} // a list of nothing is no error, so this is no S3 server, or no bucket
		}
		return verdict{err: mk(bucket.ErrNotFound, said)}
	case http.StatusRequestedRangeNotSatisfiable:
		return verdict{err: mk(bucket.ErrRange, said)}
	case http.StatusPreconditionFailed, http.StatusConflict:
		if r.once {
			return verdict{err: mk(bucket.ErrPrecondition, said)}
		}
		// Two writers met, or a delete and a write.
		return verdict{err: mk(bucket.ErrUnavailable, said), again: true}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return verdict{err: mk(bucket.ErrUnavailable, said), slow: true}
	case http.StatusRequestTimeout:
		return verdict{err: mk(bucket.ErrUnavailable, said), again: true}
	}
	if resp.StatusCode >= 500 || resp.StatusCode == 0 || resp.Code == "IncompleteBody" || resp.Code == "InternalError" || resp.Code == "RequestTimeout" {
		return verdict{err: mk(bucket.ErrUnavailable, said), again: true}
	}
	return verdict{err: mk(bucket.ErrRefused, said)}
}
