package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/cluster"
)

const (
	askTime    = 2 * time.Second // for one node's answer
	askAtOnce  = 16
	askedBytes = 4 << 20 // of an answer
)

// NodeHealth is what a node says about itself.
type NodeHealth struct {
	Node     int32     `json:"node"`
	Answered bool      `json:"answered"`
	Error    string    `json:"error,omitempty"` // why it did not
	Ready    bool      `json:"ready"`
	Problems []Problem `json:"problems"`
}

// ask gets a page of another node's admin API.
func (a *api) ask(ctx context.Context, b *cluster.Broker, path string, v any) error {
	if b.AdminURL == "" {
		return fmt.Errorf("broker %d has told no admin address", b.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.AdminURL+path, nil)
	if err != nil {
		return fmt.Errorf("the admin address of broker %d: %w", b.ID, err)
	}
	resp, err := a.peers.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // opened for reading only
	data, err := io.ReadAll(io.LimitReader(resp.Body, askedBytes))
	if err != nil {
		return fmt.Errorf("%s%s: %w", b.AdminURL, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s answered %s", b.AdminURL, path, resp.Status)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s%s: %w", b.AdminURL, path, err)
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
func (a *api) askHealth(ctx context.Context, b *cluster.Broker) NodeHealth {
	h := NodeHealth{Node: b.ID, Problems: []Problem{}}
	if b.ID == a.BrokerID {
		r := a.readiness()
		h.Answered, h.Ready, h.Problems = true, r.Ready, r.Problems
		return h
	}
	var info struct {
		BrokerID  int32     `json:"broker_id"`
		ClusterID string    `json:"cluster_id"`
		Health    Readiness `json:"health"`
	}
	err := a.ask(ctx, b, "/api/v1/cluster", &info)
	if err == nil && (info.BrokerID != b.ID || info.ClusterID != a.Cluster.Image().ClusterID()) {
		err = fmt.Errorf("at %s node %d of cluster %s answers", b.AdminURL, info.BrokerID, info.ClusterID)
	}
	if err != nil {
		h.Error = err.Error()
		return h
	}
	h.Answered, h.Ready = true, info.Health.Ready
	h.Problems = append(h.Problems, info.Health.Problems...)
	return h
}

// askAll asks all living brokers, in the order of their ids.
func (a *api) askAll(ctx context.Context, image *cluster.Image) []NodeHealth {
	brokers := image.Brokers()
	list := make([]NodeHealth, len(brokers))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i := range brokers {
		g.Go(func() error {
			list[i] = a.askHealth(ctx, &brokers[i])
			return nil // each has an answer of its own
		})
	}
	_ = g.Wait()
	return list
}
