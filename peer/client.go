package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ClientOptions of a Client.
type ClientOptions struct {
	ClusterID string
	Secret    []byte      // empty: none
	TLS       *tls.Config // for https addresses; nil: the system's authorities, no certificate
	Now       func() time.Time
}

// Client calls other nodes.
type Client struct {
	o    ClientOptions
	http *http.Client
}

// NewClient returns a client; Close ends its idle connections.
func NewClient(o ClientOptions) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{o: o, http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: o.TLS, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 16, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10},
		// A node answers itself.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do calls name at a node (its peer URL) with in, and decodes the result into out unless that is nil. ctx without a deadline
// gets DefaultTimeout. Errors wrap ErrUnavailable, ErrRefused, ErrDenied, ErrOtherCluster or ErrUnknownCall, or are the node's own.
func (c *Client) Do(ctx context.Context, node, name string, in, out any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	if err := c.do(ctx, node, name, in, out); err != nil {
		return fmt.Errorf("call %s at %s: %w", name, node, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, node, name string, in, out any) error {
	u, err := url.Parse(node)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: not an http or https address", ErrUnavailable)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.Scheme+"://"+u.Host+pathPrefix+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(c.o.Now().UnixMilli(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(headCluster, c.o.ClusterID)
	req.Header.Set(headTime, at)
	if len(c.o.Secret) > 0 {
		req.Header.Set(headAuth, proof(c.o.Secret, c.o.ClusterID, name, at, body))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	answer, err := bounded(resp.Body, maxAnswer)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if resp.StatusCode != http.StatusOK {
		return failure(resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer can't be decoded: %w", err)
	}
	return nil
}

func failure(status int, answer []byte) error {
	text := strings.ToValidUTF8(string(answer[:min(len(answer), maxText)]), "?")
	kinds := map[int]error{http.StatusUnauthorized: ErrDenied, http.StatusForbidden: ErrDenied, http.StatusNotFound: ErrUnknownCall,
		http.StatusConflict: ErrRefused, http.StatusMisdirectedRequest: ErrOtherCluster, http.StatusServiceUnavailable: ErrUnavailable}
	if kind := kinds[status]; kind != nil {
		return fmt.Errorf("%w: %s", kind, text)
	}
	return fmt.Errorf("status %d: %s", status, text)
}
