package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// newCredentials returns the static credentials of o, or a chain that asks the usual places.
func newCredentials(o *Options, transport http.RoundTripper) (*credentials.Credentials, error) {
	if o.AccessKey != "" || o.SecretKey != "" {
		if o.AccessKey == "" || o.SecretKey == "" {
			return nil, errors.New("only one of access key and secret key is given")
		}
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken), nil
	}
	// Metadata services answer at once or not at all; STS is on the internet.
	metadata := &http.Client{Timeout: 10 * time.Second, Transport: transport}
	if !webIdentity() {
		metadata = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true,
		}}
	}
	return credentials.New(&chain{sources: []source{
		{"the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)", &credentials.EnvAWS{}},
		{"the shared files", &credentials.FileAWSCredentials{}},
		{"web identity, container or instance metadata", &credentials.IAM{Client: metadata}},
	}}), nil
}

func webIdentity() bool { return os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" }

// source is one place to look for credentials.
type source struct {
	name     string
	provider credentials.Provider
}

// chain asks its sources in turn. Unlike minio-go's own it never falls back to anonymous requests, and it tells why nothing
// was found. credentials.Credentials serialises its calls.
type chain struct {
	sources []source
	current credentials.Provider
}

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var errs []error
	for _, s := range c.sources {
		v, err := s.provider.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.current = s.provider
			return v, nil
		}
		if err == nil {
			err = errors.New("nothing set")
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return credentials.Value{}, &credentialsError{errs}
}

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.current == nil || c.current.IsExpired() }

// credentialsError says where nothing was found, and why.
type credentialsError struct{ errs []error }

func (e *credentialsError) Error() string {
	s := "no credentials were found in "
	for i, err := range e.errs {
		if i > 0 {
			s += ", "
		}
		s += err.Error()
	}
	return s
}

func (e *credentialsError) Unwrap() []error { return e.errs }
