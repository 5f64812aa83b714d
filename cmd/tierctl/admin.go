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
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/admin"
)

// maxAnswer bounds what is read from an admin API.
const maxAnswer = 256 << 20

// errNoAdmin marks that the admin API could not be reached at all.
var errNoAdmin = errors.New("the admin API does not answer")

// call asks the admin API and decodes its answer into v. Of several addresses the first that answers is asked: every node
// knows the cluster, and what is asked for may be asked twice.
func (g *globals) call(ctx context.Context, method, path string, body, v any) error {
	var send []byte
	if body != nil {
		var err error
		if send, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var errs []error
	for address := range strings.SplitSeq(g.Admin, ",") {
		err := ask(ctx, method, strings.TrimSuffix(strings.TrimSpace(address), "/"), path, send, v)
		if !errors.Is(err, errNoAdmin) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%w (is a node running there? --admin URL,URL names others)", errors.Join(errs...))
}

func ask(ctx context.Context, method, address, path string, body []byte, v any) error {
	target := address + path
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return usagef("--admin %q is not a URL: %w", address, err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 16 * time.Minute, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAdmin, err)
	}
	defer resp.Body.Close() //nolint:errcheck // opened for reading only
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, target, err)
	}
	if resp.StatusCode != http.StatusOK {
		var answer struct{ Error string }
		if json.Unmarshal(data, &answer) == nil && answer.Error != "" {
			return &refusal{resp.StatusCode, address, answer.Error}
		}
		return fmt.Errorf("%s %s answered %s", method, target, resp.Status)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s %s: not the answer of a tierbroker: %w", method, target, err)
	}
	return nil
}

// refusal is an admin API's answer that it won't do what was asked, and why.
type refusal struct {
	status        int
	address, text string
}

func (r *refusal) Error() string { return r.text }

func (g *globals) adminTopics(ctx context.Context) (*admin.TopicList, error) {
	var answer admin.TopicList
	err := g.call(ctx, http.MethodGet, "/api/v1/topics", nil, &answer)
	return &answer, err
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
