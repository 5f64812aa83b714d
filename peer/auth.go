package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// skew is how far the clocks of two nodes may be apart, and for how long a call that was overheard can be repeated.
const skew = 5 * time.Minute

// proof is what a caller that knows the secret can compute.
func proof(secret []byte, cluster, name, at string, body []byte) string {
	m := hmac.New(sha256.New, secret)
	for _, part := range []string{cluster, name, at} {
		fmt.Fprintf(m, "%d:%s", len(part), part) // no part can pass for two
	}
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}

var errProof = errors.New("the caller does not know this cluster's secret")

// authentic checks a caller's proof.
func (s *Server) authentic(r *http.Request, name string, body []byte) error {
	if len(s.o.Secret) == 0 {
		return nil
	}
	at := r.Header.Get(headTime)
	want := proof(s.o.Secret, s.o.ClusterID, name, at, body)
	if !hmac.Equal([]byte(want), []byte(r.Header.Get(headAuth))) {
		return errProof
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return errProof
	}
	if d := s.o.Now().Sub(time.UnixMilli(ms)); d > skew || d < -skew {
		return fmt.Errorf("the clocks of the two nodes are %s apart, at most %s are allowed", d.Abs().Round(time.Second), skew)
	}
	return nil
}

func bounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return b, err
}
