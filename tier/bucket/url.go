package bucket

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Schemes of bucket URLs.
const (
	SchemeFile   = "file"
	SchemeS3     = "s3"
	SchemeMemory = "mem"
)

// URL says where a bucket is:
//
//	file:///PATH                                                        a directory
//	s3://NAME[/PREFIX][?endpoint=http://HOST:PORT][&region=R][&path-style=true]
//	mem://                                                              memory, gone with the process
//
// Credentials are never part of it.
type URL struct {
	Scheme    string
	Path      string // file: absolute path
	Bucket    string // s3: name of the bucket
	Prefix    string // s3: prepended to every key, without slashes at its ends; may be empty
	Endpoint  string // s3: HOST[:PORT]; empty means Amazon's
	Plain     bool   // s3: http instead of https
	Region    string // s3: may be empty
	PathStyle bool   // s3: the bucket's name goes into the path of requests even where it could be a host name
}

// ParseURL parses s. The error (ErrConfig) names every fault of it.
func ParseURL(s string) (URL, error) {
	p, err := url.Parse(s)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return URL{}, newError("parse", strconv.Quote(s), ErrConfig, err)
	}
	u := URL{Scheme: p.Scheme}
	var faults []string
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if p.User != nil {
		add("credentials do not belong into the URL: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the shared files, or a web identity")
	}
	if p.Fragment != "" {
		add("the fragment #%s has no meaning", p.Fragment)
	}
	query, err := url.ParseQuery(p.RawQuery)
	if err != nil {
		add("the query is malformed: %v", err)
	}
	switch p.Scheme {
	case SchemeFile:
		u.parseFile(p, query, add)
	case SchemeS3:
		u.parseS3(p, query, add)
	case SchemeMemory:
		if p.Host != "" || p.Path != "" || p.Opaque != "" {
			add("nothing may follow mem://")
		}
		unknown(query, nil, add)
	case "":
		add("the scheme is missing: file:///PATH, s3://NAME/PREFIX or mem:// is expected")
	default:
		add("scheme %q is unknown: file, s3 and mem are known", p.Scheme)
	}
	if len(faults) > 0 {
		return URL{}, newError("parse", strconv.Quote(s), ErrConfig, errors.New(strings.Join(faults, "; ")))
	}
	return u, nil
}

func unknown(query url.Values, known []string, add func(string, ...any)) {
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			add("parameter %q is unknown", name)
		case len(query[name]) > 1:
			add("parameter %q is given %d times", name, len(query[name]))
		}
	}
}

func (u *URL) parseFile(p *url.URL, query url.Values, add func(string, ...any)) {
	switch {
	case p.Opaque != "" || p.Host != "" && p.Host != "localhost":
		add("the path must be absolute: file:///PATH, with three slashes")
	case p.Path == "" || p.Path == "/":
		add("the path is missing")
	case strings.ContainsRune(p.Path, 0):
		add("the path holds a zero byte")
	}
	u.Path = p.Path
	unknown(query, nil, add)
}

func (u *URL) parseS3(p *url.URL, query url.Values, add func(string, ...any)) {
	u.Bucket = p.Host
	if p.Opaque != "" {
		add("two slashes must follow s3:")
	}
	if err := checkBucketName(u.Bucket); err != nil {
		add("%v", err)
	}
	u.Prefix = strings.Trim(p.Path, "/")
	if u.Prefix != "" {
		if err := CheckKey(u.Prefix); err != nil {
			var e *Error
			errors.As(err, &e)
			add("prefix %q is invalid: %v", u.Prefix, e.Err)
		} else if len(u.Prefix) > 1024-MaxKey-1 {
			add("the prefix has %d bytes, at most %d are allowed", len(u.Prefix), 1024-MaxKey-1)
		}
	}
	unknown(query, []string{"endpoint", "region", "path-style"}, add)
	if query.Has("endpoint") {
		u.parseEndpoint(query.Get("endpoint"), add)
	}
	u.Region = query.Get("region")
	if query.Has("region") && !validRegion(u.Region) {
		add("region %q is invalid: letters, digits and - are allowed", u.Region)
	}
	if query.Has("path-style") {
		v, err := strconv.ParseBool(query.Get("path-style"))
		if err != nil {
			add("path-style must be true or false, not %q", query.Get("path-style"))
		}
		u.PathStyle = v
	}
}

func validRegion(r string) bool {
	return r != "" && len(r) <= 64 && strings.Trim(r, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func (u *URL) parseEndpoint(s string, add func(string, ...any)) {
	e, err := url.Parse(s)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Hostname() == "" {
		add("endpoint %q is invalid: http://HOST:PORT or https://HOST[:PORT] is expected", s)
		return
	}
	if strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.Fragment != "" || e.User != nil || e.ForceQuery {
		add("endpoint %q has more than scheme, host and port", s)
	}
	if port := e.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			add("port %q of the endpoint is invalid", port)
		}
	} else if strings.HasSuffix(e.Host, ":") {
		add("the endpoint's port is missing")
	}
	if h := e.Hostname(); strings.ContainsAny(h, " %\"<>\\^`{|}") || strings.Contains(h, ":") && net.ParseIP(h) == nil {
		add("host %q of the endpoint is invalid", h)
	}
	u.Endpoint, u.Plain = e.Host, e.Scheme == "http"
}

// checkBucketName holds names to S3's rules, all its faults in one sentence.
func checkBucketName(name string) error {
	if name == "" {
		return errors.New("the bucket's name is missing")
	}
	var faults []string
	if len(name) < 3 || len(name) > 63 {
		faults = append(faults, "3 to 63 characters are allowed")
	}
	if strings.IndexFunc(name, badBucketRune) >= 0 {
		faults = append(faults, "only lower-case letters, digits, . and - are allowed")
	}
	if strings.Trim(name, ".-") != name || strings.Contains(name, "..") || strings.Contains(name, ".-") || strings.Contains(name, "-.") {
		faults = append(faults, "each part must begin and end with a letter or digit")
	}
	if net.ParseIP(name) != nil {
		faults = append(faults, "it must not be an IP address")
	}
	if len(faults) > 0 {
		return fmt.Errorf("bucket name %q is invalid: %s", name, strings.Join(faults, ", "))
	}
	return nil
}

func badBucketRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
}

// String returns a URL that ParseURL parses to u.
func (u URL) String() string {
	switch u.Scheme {
	case SchemeFile:
		return (&url.URL{Scheme: SchemeFile, Path: u.Path}).String()
	case SchemeMemory:
		return "mem://"
	}
	q := url.Values{}
	if u.Endpoint != "" {
		scheme := "https://"
		if u.Plain {
			scheme = "http://"
		}
		q.Set("endpoint", scheme+u.Endpoint)
	}
	if u.Region != "" {
		q.Set("region", u.Region)
	}
	if u.PathStyle {
		q.Set("path-style", "true")
	}
	s := "s3://" + u.Bucket
	if u.Prefix != "" {
		s += "/" + u.Prefix
	}
	if len(q) > 0 {
		s += "?" + strings.NewReplacer("%3A", ":", "%2F", "/").Replace(q.Encode())
	}
	return s
}
