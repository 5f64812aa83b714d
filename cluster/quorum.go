package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// Member is one etcd of a quorum.
type Member struct {
	Name string
	Peer string // HOST:PORT at which the other members reach it
}

// ServerTLS names the files with which an embedded etcd serves, and asks other
// members. Whoever connects must show a certificate of the CA.
type ServerTLS struct{ CA, Cert, Key string }

// maxMembersBytes bounds what another member says about the quorum.
const maxMembersBytes = 1 << 20

func (o *EmbeddedOptions) scheme() string {
	if o.TLS != nil {
		return "https"
	}
	return "http"
}

// listen adds listeners and quorum to the configuration of a member that stands
// alone behind no port.
func (o *EmbeddedOptions) listen(ctx context.Context, c *embed.Config) error {
	if o.TLS != nil {
		info := transport.TLSInfo{CertFile: o.TLS.Cert, KeyFile: o.TLS.Key, TrustedCAFile: o.TLS.CA, ClientCertAuth: o.TLS.CA != ""}
		c.ClientTLSInfo, c.PeerTLSInfo = info, info
	}
	if o.ClientListen != "" {
		bind, err := bindURL(ctx, o.scheme(), o.ClientListen)
		if err != nil {
			return err
		}
		c.ListenClientUrls = []url.URL{bind}
		c.AdvertiseClientUrls = []url.URL{{Scheme: o.scheme(), Host: o.ClientListen}}
	}
	if len(o.Members) == 0 {
		return nil
	}
	i := slices.IndexFunc(o.Members, func(m Member) bool { return m.Name == o.Name })
	if i < 0 {
		return fmt.Errorf("start etcd: the members don't name %q", o.Name)
	}
	own := o.Members[i].Peer
	host, port, err := net.SplitHostPort(own)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	if h, _, err := net.SplitHostPort(o.ClientListen); err == nil {
		// A listener on all addresses, or on another name of this machine, is for both.
		host = h
	}
	bind, err := bindURL(ctx, o.scheme(), net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	c.Name = o.Name
	c.ListenPeerUrls = []url.URL{bind}
	c.AdvertisePeerUrls = []url.URL{{Scheme: o.scheme(), Host: own}}
	var initial []string
	for _, m := range o.Members {
		initial = append(initial, m.Name+"="+o.scheme()+"://"+m.Peer)
	}
	c.InitialCluster = strings.Join(initial, ",")
	if len(o.Members) == 1 {
		return nil
	}
	// Elections go over a network here.
	c.TickMs, c.ElectionMs = 100, 1000
	return o.joining(ctx, c, own)
}

// bindURL resolves the host, since etcd listens on addresses only.
func bindURL(ctx context.Context, scheme, addr string) (url.URL, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return url.URL{}, fmt.Errorf("start etcd: %w", err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if net.ParseIP(host) == nil {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return url.URL{}, fmt.Errorf("start etcd: %w", err)
		}
		host = ips[0].Unmap().String()
	}
	return url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}, nil
}

// joining decides what a member without data is: part of a cluster that begins, one
// that an operator has added to a running cluster, or one that has lost its data. The
// last must not vote: it may have voted already and doesn't know.
func (o *EmbeddedOptions) joining(ctx context.Context, c *embed.Config, own string) error {
	if _, err := os.Stat(filepath.Join(c.Dir, "member", "wal")); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start etcd: %w", err)
	}
	known, from := o.askMembers(ctx, own)
	if known == nil {
		return nil // nobody answers: a cluster that begins, or all have lost their data
	}
	ownURL := o.scheme() + "://" + own
	add := fmt.Sprintf("member add %s --peer-urls=%s", o.Name, ownURL)
	i := slices.IndexFunc(known, func(m knownMember) bool { return slices.Contains(m.PeerURLs, ownURL) })
	switch {
	case i < 0:
		return fmt.Errorf("%w: the controllers that run (%s answered) don't know %s: add it with \"etcdctl --endpoints=ADDRESS %s\", where ADDRESS is etcd-listen of one that runs",
			ErrMember, from, o.Name, add)
	case len(known[i].ClientURLs) > 0:
		return fmt.Errorf("%w: %s is empty, but %s had data as a member of this quorum (%s says so): bring the directory back, or, if it is lost, run "+
			"\"etcdctl --endpoints=ADDRESS member remove %x\" and then \"etcdctl --endpoints=ADDRESS %s\" (ADDRESS: etcd-listen of a controller that runs), and start again",
			ErrMember, o.Dir, o.Name, from, known[i].ID, add)
	case known[i].Name == "":
		c.ClusterState = embed.ClusterStateFlagExisting // added, and not started yet
	}
	return nil
}

// knownMember is what a running member says of one of the quorum.
type knownMember struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"clientURLs"` // none: it has never run
}

// askMembers asks the other members, one after the other, who belongs to the quorum;
// nil when none answers.
func (o *EmbeddedOptions) askMembers(ctx context.Context, own string) ([]knownMember, string) {
	tr := &http.Transport{DisableKeepAlives: true}
	if o.TLS != nil {
		// Faults of the files are told by etcd when it listens.
		tr.TLSClientConfig, _ = o.TLS.client()
	}
	client := &http.Client{Transport: tr, Timeout: 2 * time.Second}
	for _, m := range o.Members {
		if m.Peer == own {
			continue
		}
		if list, err := askMember(ctx, client, o.scheme()+"://"+m.Peer+"/members"); err == nil && len(list) > 0 {
			return list, m.Name
		}
	}
	return nil, ""
}

func askMember(ctx context.Context, client *http.Client, address string) ([]knownMember, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMembersBytes))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	var list []knownMember
	return list, json.Unmarshal(body, &list)
}

func (t *ServerTLS) client() (*tls.Config, error) { return ClientTLS(t.CA, t.Cert, t.Key) }

// ClientTLS reads the files with which a client trusts servers (ca; empty: the
// system's authorities) and shows itself (cert and key; both empty: not at all).
func ClientTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
