package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// deleteTopics answers DeleteTopics, versions 1 to 6. The topic is gone for clients when the deletion is committed;
// the answer waits, as long as the client does, until its name is free again, so that it can be created anew at once.
func (b *Broker) deleteTopics(ctx context.Context, c *call, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := b.timeout(ctx, req.TimeoutMillis)
	defer cancel()
	topics := req.Topics
	if c.Version < 6 {
		topics = make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
		for i := range topics {
			topics[i].Topic = &req.TopicNames[i]
		}
	}
	count := make(map[frame.TopicID]int)
	img := b.o.Cluster.Image()
	for i := range topics {
		if t, err := topicToDelete(img, &topics[i]); err == nil {
			count[t.ID]++
		}
	}
	var gone []frame.TopicID
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, 0, len(topics))
	for i := range topics {
		in := &topics[i]
		t, err := topicToDelete(img, in)
		if err == nil && count[t.ID] == 0 {
			continue // a repeated topic was answered once
		}
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		if err == nil {
			out.Topic, out.TopicID = ptr(t.Name), t.ID
			err = b.deleteTopic(ctx, t, count[t.ID] > 1)
			count[t.ID] = 0
		}
		if err == nil {
			gone = append(gone, t.ID)
		} else {
			out.ErrorCode = b.fail(c, "topic", err)
			_, out.ErrorMessage = codeAndText(err)
		}
		resp.Topics = append(resp.Topics, out)
	}
	b.awaitGone(ctx, gone)
	return resp
}

func topicToDelete(img *cluster.Image, in *kmsg.DeleteTopicsRequestTopic) (*cluster.Topic, error) {
	byID := in.TopicID != [16]byte{}
	switch {
	case byID && in.Topic != nil:
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case !byID && in.Topic == nil:
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	}
	name := ""
	if in.Topic != nil {
		name = *in.Topic
	}
	t, unknown := findTopic(img, byID, name, in.TopicID)
	if unknown != nil {
		return nil, unknown
	}
	return t, nil
}

func (b *Broker) deleteTopic(ctx context.Context, t *cluster.Topic, twice bool) error {
	switch {
	case twice:
		return refuse(kerr.InvalidRequest, "The topic is named more than once in the request.")
	case t.Internal:
		return refuse(kerr.InvalidRequest, "Topic '"+t.Name+"' is internal and can't be deleted.")
	case !cluster.ParseBrokerSettings(b.o.Cluster.Image().BrokerDefaults()).DeleteTopics:
		return kerr.TopicDeletionDisabled
	}
	err := b.o.Admin.DeleteTopic(ctx, t.ID)
	if code(err) == kerr.TopicAlreadyExists.Code {
		return kerr.UnknownTopicOrPartition // somebody else has just deleted it
	}
	return err
}

func (b *Broker) awaitGone(ctx context.Context, ids []frame.TopicID) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	b.awaitImage(ctx, func(img *cluster.Image) bool {
		for ; len(ids) > 0; ids = ids[1:] {
			if img.TopicByID(ids[0]) != nil {
				return false
			}
		}
		return true
	})
}
