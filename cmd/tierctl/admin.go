package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tierbroker/tierbroker/admin"
)

// maxAnswer bounds what is read from an admin API.
const maxAnswer = 256 << 20

// errNoAdmin marks that the admin API could not be reached at all.
var errNoAdmin = errors.New("the admin API does not answer")

// call asks the admin API and decodes its answer into v.
func (g *globals) call(ctx context.Context, method, path string, body, v any) error {
	target := g.Admin + path
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, send)
	if err != nil {
		return usagef("--admin %q is not a URL: %w", g.Admin, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 16 * time.Minute, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w (is a broker running there? --admin URL names another): %w", errNoAdmin, err)
	}
	defer resp.Body.Close() //nolint:errcheck // opened for reading only
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, target, err)
	}
	if resp.StatusCode != http.StatusOK {
		var answer struct{ Error string }
		if json.Unmarshal(data, &answer) == nil && answer.Error != "" {
			return fmt.Errorf("%s: %s", g.Admin, answer.Error)
		}
		return fmt.Errorf("%s %s answered %s", method, target, resp.Status)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s %s: not the answer of a tierbroker: %w", method, target, err)
	}
	return nil
}

func (g *globals) adminTopics(ctx context.Context) ([]admin.Topic, error) {
	var answer struct{ Topics []admin.Topic }
	err := g.call(ctx, http.MethodGet, "/api/v1/topics", nil, &answer)
	return answer.Topics, err
}

func (g *globals) adminTopic(ctx context.Context, name string) (*admin.TopicDetail, error) {
	var answer admin.TopicDetail
	err := g.call(ctx, http.MethodGet, "/api/v1/topics/"+url.PathEscape(name), nil, &answer)
	return &answer, err
}

// adminAct asks for roll or evict of a topic, or of one partition of it.
func (g *globals) adminAct(ctx context.Context, what, topic string, partition int32) (*admin.ActionResult, error) {
	body := map[string]any{}
	if partition >= 0 {
		body["partition"] = partition
	}
	var answer admin.ActionResult
	err := g.call(ctx, http.MethodPost, "/api/v1/topics/"+url.PathEscape(topic)+"/"+what, body, &answer)
	return &answer, err
}
