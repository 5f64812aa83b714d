package s3

import (
	"cmp"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Options say where the bucket is and how hard to use it. The zero value of everything but URL means the default.
type Options struct {
	URL bucket.URL
	// Credentials for tests and tools; when empty, they come from the environment, files or metadata.
	AccessKey, SecretKey, SessionToken string
	// Lanes overrides the defaults of classes.
	Lanes map[string]Lane
	// NoCheck lets Open return without asking the store: a broker that knows its bucket starts while that doesn't answer.
	NoCheck bool
	// OpenTimeout bounds the check that Open does (default 15 s).
	OpenTimeout time.Duration
}

// Lane is the concurrency and the deadline of one class of operations.
type Lane struct {
	Concurrency int           // requests at a time
	Deadline    time.Duration // of one attempt; one second is added for each MiB that it moves
}

// defaultLanes: three attempts of heads and cold reads end before a Kafka client's request timeout (30 s) does.
var defaultLanes = map[string]Lane{
	bucket.ClassRoll:  {Concurrency: 8, Deadline: 30 * time.Second},
	bucket.ClassWAL:   {Concurrency: 16, Deadline: 8 * time.Second},
	bucket.ClassHead:  {Concurrency: 64, Deadline: 8 * time.Second},
	bucket.ClassCold:  {Concurrency: 32, Deadline: 8 * time.Second},
	bucket.ClassSweep: {Concurrency: 4, Deadline: 30 * time.Second},
	bucket.ClassTool:  {Concurrency: 16, Deadline: 30 * time.Second},
}

// perMiB is what each MiB adds to a deadline: slower than that counts as hanging.
const perMiB = time.Second

const (
	amazonHost    = "s3.amazonaws.com"
	defaultRegion = "us-east-1"
)

// region is the URL's, the environment's, or, for stores other than Amazon's, the one that most of them use. Amazon is asked.
func (o *Options) region() string {
	r := cmp.Or(o.URL.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if r == "" && o.URL.Endpoint != "" {
		r = defaultRegion
	}
	return r
}

// newTransport: HTTP/1.1 only, because one slow stream of an HTTP/2 connection slows the others; enough idle connections
// for all lanes at once.
func newTransport(idle int) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:          idle,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		WriteBufferSize:       128 << 10,
		ReadBufferSize:        64 << 10,
	}
}

// expectFrom is the body size from which a PUT asks before it sends.
const expectFrom = 1 << 20

// asking is a transport whose large PUTs wait for the store's leave (100 Continue) before they send their body: a store that
// refuses one says so in an answer, instead of a connection reset while the body is on its way.
type asking struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.ContentLength >= expectFrom {
		r = r.Clone(r.Context()) // a RoundTripper must not change its argument
		r.Header.Set("Expect", "100-continue")
	}
	return a.RoundTripper.RoundTrip(r)
}
