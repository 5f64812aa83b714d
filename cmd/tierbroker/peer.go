package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/peer"
)

// reportEvery is the pause between two reports of loads.
const reportEvery = 5 * time.Second

// reportsMissed is how many reports must fail in a row before that is said.
const reportsMissed = 6

// maxSecret bounds the file of the shared secret.
const maxSecret = 4 << 10

// peers is what this process asks other nodes and answers them.
type peers struct {
	secret []byte
	tls    *tls.Config // both as client and as server; nil: plain
	url    string      // of the own listener; empty: there is none
	listen net.Listener
	client *peer.Client
	loads  peer.LoadBook // of all brokers, while this node leads
}

// openPeers reads the secrets and takes the port, before anything is told to others.
func (d *daemon) openPeers() error {
	s := d.config.ClusterSecurity
	if file := s["peer-secret-file"]; file != "" {
		secret, err := os.ReadFile(file)
		secret = bytes.TrimSpace(secret)
		switch {
		case err != nil:
			return mistake("cluster-security: peer-secret-file: %w", err)
		case len(secret) < 16 || len(secret) > maxSecret:
			return mistake("cluster-security: %s holds %d bytes, a secret has 16 to %d", file, len(secret), maxSecret)
		}
		d.peers.secret = secret
	}
	if s["peer-ca"] != "" || s["peer-cert"] != "" {
		t, err := clientTLS("peer", s)
		if err != nil {
			return err
		}
		if s["peer-ca"] != "" {
			t.ClientCAs, t.ClientAuth = t.RootCAs, tls.RequireAndVerifyClientCert
		}
		d.peers.tls = t
	}
	addr := d.config.PeerListen
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return portMistake("peer-listen", addr, err)
	}
	d.peers.listen = l
	d.onClose(func() error { return ignoreClosed(l.Close()) })
	scheme := "http"
	if d.peers.tls != nil {
		scheme = "https"
	}
	d.peers.url = scheme + "://" + d.config.ReachedAt(addr, l.Addr())
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && d.peers.tls == nil && len(d.peers.secret) == 0 && !net.ParseIP(host).IsLoopback() {
		d.log.Warn("whoever reaches peer-listen can call this node: set peer-secret-file or certificates in cluster-security", zap.String("peer-listen", addr))
	}
	return nil
}

// servePeers answers calls of other nodes until the process ends.
func (d *daemon) servePeers() {
	id := d.cluster.Image().ClusterID()
	d.peers.client = peer.NewClient(peer.ClientOptions{ClusterID: id, Secret: d.peers.secret, TLS: d.peers.tls})
	d.onClose(func() error { d.peers.client.Close(); return nil })
	if d.peers.listen == nil {
		return
	}
	server := peer.Serve(d.peers.listen, d.peers.tls, peer.Options{ClusterID: id, Secret: d.peers.secret, Calls: d.peerCalls(),
		OnFault: func(err error) { d.log.Warn("calls of other nodes", zap.Error(err)) }})
	d.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	})
}

// peerCalls lists what other nodes may ask of this one.
func (d *daemon) peerCalls() map[string]peer.Call {
	loads := peer.Handle(func(_ context.Context, r peer.LoadReport) (struct{}, error) { return struct{}{}, d.takeLoads(&r) })
	loads.MaxBody = peer.MaxLoadBody
	return map[string]peer.Call{peer.CallLoads: loads, callKnownLoads: peer.Handle(d.tellLoads)}
}

// takeLoads notes a broker's report when this node leads.
func (d *daemon) takeLoads(r *peer.LoadReport) error {
	if !d.leads() {
		return fmt.Errorf("%w: this node does not lead", peer.ErrRefused)
	}
	if err := r.Check(); err != nil {
		return err
	}
	if b, ok := d.cluster.Image().Broker(r.Broker); !ok || b.Incarnation != r.Incarnation {
		return fmt.Errorf("%w: broker %d is not known with this run", peer.ErrRefused, r.Broker)
	}
	d.peers.loads.Put(r, time.Now())
	return nil
}

// knownLoads is what the controller plans with; nil when nobody has reported.
func (d *daemon) knownLoads() controller.Loads {
	var known controller.Loads
	for id, l := range d.peers.loads.All(time.Now()) {
		if known == nil {
			known = controller.Loads{}
		}
		known[id] = controller.Load{In: l[0], Out: l[1]}
	}
	return known
}

// reportLoads tells the leading controller what this broker's partitions move, until ctx ends. A report that fails is not
// repeated: the next one says it all.
func (n *node) reportLoads(ctx context.Context) {
	var meter peer.Meter
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := peer.LoadReport{Broker: n.d.config.BrokerID, Incarnation: n.incarnation, Topics: meter.Measure(time.Now(), n.traffic)}
		err := n.sendLoads(ctx, &r)
		if err == nil {
			failures = 0
			continue
		}
		// A leader that has just died is no news: another one follows when its lease ends.
		if failures++; failures == reportsMissed && ctx.Err() == nil {
			n.d.log.Warn("the controller does not learn the load of this broker; placing goes by numbers of partitions", zap.Error(err))
		}
	}
}

// traffic yields the counters of every partition that is written here.
func (n *node) traffic(yield func(peer.Counted) bool) {
	for _, p := range n.set.All() {
		in, out := p.Traffic()
		if !yield(peer.Counted{ID: p.ID(), In: in, Out: out}) {
			return
		}
	}
}

func (n *node) sendLoads(ctx context.Context, r *peer.LoadReport) error {
	leader, ok := n.d.cluster.Image().LeadingController()
	switch {
	case ok && leader.Lease == n.session.Lease():
		return n.d.takeLoads(r)
	case !ok || leader.PeerURL == "":
		return nil // nobody to tell now, or the operator wants no such port
	}
	ctx, cancel := context.WithTimeout(ctx, reportEvery)
	defer cancel()
	err := n.d.peers.client.Do(ctx, leader.PeerURL, peer.CallLoads, r, nil)
	if errors.Is(err, peer.ErrRefused) {
		return nil // another controller has just been elected
	}
	return err
}
