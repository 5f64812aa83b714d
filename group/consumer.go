package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type consumer struct{ members map[string]struct{} }

func (c *consumer) state() State                                                { return StateEmpty }
func (c *consumer) loaded(*Machine)                                             {}
func (c *consumer) snapshot(func(Record) bool) bool                             { return true }
func (c *consumer) checkCommit(*Machine, *kmsg.OffsetCommitRequest) *kerr.Error { return nil }
func (c *consumer) checkFetch(*string, int32) *kerr.Error                       { return nil }
func (c *consumer) subscribed(*Machine) func(string) bool                       { return nil }
func (m *Machine) emitConsumerTombstones(*group)                                {}
func (m *Machine) fireConsumer(*group, timerKey)                                {}
func (m *Machine) applyConsumer(int16, *keyReader, []byte) bool                 { return false }
func (m *Machine) joinConsumer(*group, *joinRequest, *waiter)                   {}
func (m *Machine) syncConsumer(*group, *kmsg.SyncGroupRequest) kmsg.Response    { return nil }
func (m *Machine) heartbeatConsumer(*group, *kmsg.HeartbeatRequest) *kerr.Error { return nil }
func (m *Machine) leaveConsumer(*group, []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	return nil
}
func (m *Machine) consumerGroupHeartbeat(c Client, r *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	return resp
}
func (m *Machine) consumerGroupDescribe(r *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	return r.ResponseKind()
}
