package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/cluster"
)

const (
	askTime    = 2 * time.Second // for one node's answer
	askAtOnce  = 16
	askedBytes = 64 << 20 // of an answer
)

// NodeHealth is what a node says about itself.
type NodeHealth struct {
	Node     int32     `json:"node"`
	Role     string    `json:"role"` // broker, or controller for one that is no broker
	Answered bool      `json:"answered"`
	Slow     bool      `json:"slow,omitempty"`  // it did not within two seconds
	Gone     bool      `json:"gone,omitempty"`  // no port of it takes connections
	Error    string    `json:"error,omitempty"` // why it did not
	Ready    bool      `json:"ready"`
	Problems []Problem `json:"problems"`
}

// node is a node that can be asked.
type node struct {
	id        int32
	role, url string
	port      string // another HOST:PORT of it, that other machines reach; empty: none is known
}

func brokerNode(b *cluster.Broker) node {
	return node{b.ID, "broker", b.AdminURL, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))}
}

func controllerNode(c *cluster.ControllerNode) node {
	n := node{id: c.ID, role: "controller", url: c.AdminURL}
	if u, err := url.Parse(c.PeerURL); err == nil {
		n.port = u.Host
	}
	return n
}

// gone tells that a node whose admin API could not be asked takes no connections elsewhere either: most likely its process
// has ended, and its lease not yet.
func (n node) gone(ctx context.Context) bool {
	if n.port == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.port)
	if err != nil {
		return true
	}
	_ = conn.Close() // nothing was sent
	return false
}

func (n node) String() string { return fmt.Sprintf("%s %d", n.role, n.id) }

// ask gets a page of another node's admin API.
func (a *api) ask(ctx context.Context, n node, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.call(ctx, n, http.MethodGet, path, "", v)
}

// call asks another node's admin API for something; a body is JSON.
func (a *api) call(ctx context.Context, n node, method, path, body string, v any) error {
	if n.url == "" {
		return fmt.Errorf("%s has told no admin address", n)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("the admin address of %s: %w", n, err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.peers.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // opened for reading only
	data, err := io.ReadAll(io.LimitReader(resp.Body, askedBytes))
	if err != nil {
		return fmt.Errorf("%s%s: %w", n.url, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		var said struct{ Error string }
		if json.Unmarshal(data, &said) == nil && said.Error != "" {
			return fmt.Errorf("%s%s answered %s: %.500s", n.url, path, resp.Status, said.Error)
		}
		return fmt.Errorf("%s%s answered %s", n.url, path, resp.Status)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s%s: %w", n.url, path, err)
	}
	return nil
}

// newPeers makes the client for other nodes. A redirect is not followed: a node answers itself.
func newPeers() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askHealth asks one node how it is; this one asks itself.
func (a *api) askHealth(ctx context.Context, n node) NodeHealth {
	h := NodeHealth{Node: n.id, Role: n.role, Problems: []Problem{}}
	if n == a.itself() {
		r := a.readiness()
		h.Answered, h.Ready, h.Problems = true, r.Ready, r.Problems
		return h
	}
	var info struct {
		BrokerID  int32     `json:"broker_id"`
		ClusterID string    `json:"cluster_id"`
		Health    Readiness `json:"health"`
	}
	err := a.ask(ctx, n, "/api/v1/cluster", &info)
	if err == nil && (info.BrokerID != n.id || info.ClusterID != a.Cluster.Image().ClusterID()) {
		err = fmt.Errorf("at %s node %d of cluster %s answers", n.url, info.BrokerID, info.ClusterID)
	}
	if err != nil {
		h.Error, h.Slow = err.Error(), errors.Is(err, context.DeadlineExceeded)
		h.Gone = !h.Slow && n.gone(ctx)
		return h
	}
	h.Answered, h.Ready = true, info.Health.Ready
	h.Problems = append(h.Problems, info.Health.Problems...)
	return h
}

// itself is this node among those that can be asked.
func (a *api) itself() node {
	image := a.Cluster.Image()
	if b, ok := image.Broker(a.BrokerID); ok && a.Partitions != nil {
		return brokerNode(&b)
	}
	for _, c := range image.Controllers() {
		if c.ID == a.BrokerID && a.Partitions == nil {
			return controllerNode(&c)
		}
	}
	return node{id: a.BrokerID, role: "node"}
}

// nodes lists the living nodes: brokers, then the controllers that are no brokers, and this one in any case.
func (a *api) nodes(image *cluster.Image) []node {
	var list []node
	for _, b := range image.Brokers() {
		list = append(list, brokerNode(&b))
	}
	for _, c := range image.Controllers() {
		if b, ok := image.Broker(c.ID); !ok || b.AdminURL != c.AdminURL {
			list = append(list, controllerNode(&c))
		}
	}
	if own := a.itself(); !slices.Contains(list, own) {
		list = append(list, own)
	}
	return list
}

// askAll asks all living nodes.
func (a *api) askAll(ctx context.Context, image *cluster.Image) []NodeHealth {
	nodes := a.nodes(image)
	list := make([]NodeHealth, len(nodes))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i := range nodes {
		g.Go(func() error {
			list[i] = a.askHealth(ctx, nodes[i])
			return nil // each has an answer of its own
		})
	}
	_ = g.Wait()
	return list
}
