package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func errName(c int16) string {
	var e *kerr.Error
	if errors.As(kerr.ErrorForCode(c), &e) {
		return " " + e.Message
	}
	return ""
}

func opt(name string, s *string) string {
	if s == nil {
		return ""
	}
	return " " + name + "=" + *s
}

// printReply prints a response, read back from its bytes as a client would.
func printReply(r kmsg.Response) string {
	back := kmsg.ResponseForKey(r.Key())
	back.SetVersion(r.GetVersion())
	if err := back.ReadFrom(r.AppendTo(nil)); err != nil {
		panic(err)
	}
	switch r := back.(type) {
	case *kmsg.JoinGroupResponse:
		s := fmt.Sprintf("Join%s member=%s gen=%d leader=%s%s%s", errName(r.ErrorCode), r.MemberID, r.Generation, r.LeaderID, opt("type", r.ProtocolType), opt("protocol", r.Protocol))
		if r.SkipAssignment {
			s += " skip"
		}
		for _, m := range r.Members {
			s += fmt.Sprintf(" [%s%s %s]", m.MemberID, opt("instance", m.InstanceID), printMeta(m.ProtocolMetadata))
		}
		return s
	case *kmsg.SyncGroupResponse:
		return fmt.Sprintf("Sync%s%s%s assignment=%s", errName(r.ErrorCode), opt("type", r.ProtocolType), opt("protocol", r.Protocol), printAssignment(r.MemberAssignment))
	case *kmsg.HeartbeatResponse:
		return "Heartbeat" + errName(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		s := "Leave" + errName(r.ErrorCode)
		for _, m := range r.Members {
			s += fmt.Sprintf(" [%s%s%s]", m.MemberID, opt("instance", m.InstanceID), errName(m.ErrorCode))
		}
		return s
	case *kmsg.ListGroupsResponse:
		s := "List" + errName(r.ErrorCode)
		for _, g := range r.Groups {
			s += fmt.Sprintf(" [%s %q %s %s]", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
		return s
	case *kmsg.DescribeGroupsResponse:
		s := "Describe"
		for _, g := range r.Groups {
			s += fmt.Sprintf(" [%s%s %s type=%q protocol=%q", g.Group, errName(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			for _, m := range g.Members {
				s += fmt.Sprintf(" {%s%s %s %s %s %s}", m.MemberID, opt("instance", m.InstanceID), m.ClientID, m.ClientHost, printMeta(m.ProtocolMetadata), printAssignment(m.MemberAssignment))
			}
			s += "]"
		}
		return s
	case *kmsg.DeleteGroupsResponse:
		s := "Delete"
		for _, g := range r.Groups {
			s += fmt.Sprintf(" [%s%s]", g.Group, errName(g.ErrorCode))
		}
		return s
	}
	return printMore(back)
}

func printMore(r kmsg.Response) string {
	switch r := r.(type) {
	case *kmsg.OffsetCommitResponse:
		s := "Commit"
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" [%s%s:%d%s]", t.Topic, idName(t.TopicID), p.Partition, errName(p.ErrorCode))
			}
		}
		return s
	case *kmsg.OffsetFetchResponse:
		s := "Fetch" + errName(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" [%s:%d at=%d meta=%q%s]", t.Topic, p.Partition, p.Offset, *p.Metadata, errName(p.ErrorCode))
			}
		}
		for _, g := range r.Groups {
			s += " " + g.Group + errName(g.ErrorCode)
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					s += fmt.Sprintf(" [%s%s:%d at=%d meta=%q%s]", t.Topic, idName(t.TopicID), p.Partition, p.Offset, *p.Metadata, errName(p.ErrorCode))
				}
			}
		}
		return s
	case *kmsg.OffsetDeleteResponse:
		s := "DeleteOffsets" + errName(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" [%s:%d%s]", t.Topic, p.Partition, errName(p.ErrorCode))
			}
		}
		return s
	case *kmsg.ConsumerGroupHeartbeatResponse:
		s := fmt.Sprintf("Beat%s%s epoch=%d interval=%d", errName(r.ErrorCode), opt("member", r.MemberID), r.MemberEpoch, r.HeartbeatIntervalMillis)
		if r.ErrorCode != 0 && r.ErrorMessage != nil {
			s += fmt.Sprintf(" %q", *r.ErrorMessage)
		}
		if r.Assignment != nil {
			s += " assignment={"
			for i, t := range r.Assignment.Topics {
				s += strings.Repeat(" ", min(i, 1)) + fmt.Sprintf("%s%v", idName(t.TopicID), t.Partitions)
			}
			s += "}"
		}
		return s
	case *kmsg.ConsumerGroupDescribeResponse:
		s := "DescribeConsumer"
		for _, g := range r.Groups {
			s += fmt.Sprintf(" [%s%s %s epoch=%d assigned=%d %s", g.Group, errName(g.ErrorCode), g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
			for _, m := range g.Members {
				s += fmt.Sprintf("\n  {%s%s%s epoch=%d %s topics=%v%s type=%d now=%s target=%s}", m.MemberID, opt("instance", m.InstanceID), opt("rack", m.RackID),
					m.MemberEpoch, m.ClientID, m.SubscribedTopics, opt("regex", m.SubscribedTopicRegex), m.MemberType, printTopics(m.Assignment), printTopics(m.TargetAssignment))
			}
			s += "]"
		}
		return s
	}
	return fmt.Sprintf("%T", r)
}

func printTopics(a kmsg.Assignment) string {
	s := ""
	for _, t := range a.TopicPartitions {
		s += fmt.Sprintf("%s(%s)%v", t.Topic, idName(t.TopicID), t.Partitions)
	}
	return "{" + s + "}"
}

// printMeta prints a subscription: a consumer's own format, or text.
func printMeta(b []byte) string {
	var s kmsg.ConsumerMemberMetadata
	if len(b) > 2 && b[0] == 0 && s.ReadFrom(b) == nil {
		return fmt.Sprintf("topics=%v", s.Topics)
	}
	return string(b)
}

func printAssignment(b []byte) string {
	var a kmsg.ConsumerMemberAssignment
	if len(b) > 2 && b[0] == 0 && a.ReadFrom(b) == nil {
		s := ""
		for _, t := range a.Topics {
			s += fmt.Sprintf("%s%v", t.Topic, t.Partitions)
		}
		return "{" + s + "}"
	}
	return string(b)
}

func printRecord(r Record) string {
	kind := int16(binary.BigEndian.Uint16(r.Key))
	k := keyReader{r.Key[2:]}
	name, _ := k.bytes()
	s := string(name)
	if len(k.b) > 0 {
		second, _ := k.bytes()
		s += " " + string(second)
	}
	if len(k.b) == 4 {
		p, _ := k.int32()
		s += fmt.Sprintf(" %d", p)
	}
	value := "gone"
	if r.Value != nil {
		value = printValue(kind, r.Value)
	}
	return fmt.Sprintf("record %d %s: %s", kind, s, value)
}

func printValue(kind int16, b []byte) string {
	switch kind {
	case kindOffset:
		var v kmsg.OffsetCommitValue
		if err := v.ReadFrom(b); err != nil {
			panic(err)
		}
		return fmt.Sprintf("v%d at=%d epoch=%d meta=%q topic=%s expires=%d", v.Version, v.Offset, v.LeaderEpoch, v.Metadata, idName(v.TopicID), v.ExpireTimestamp)
	case kindClassic:
		var v kmsg.GroupMetadataValue
		if err := v.ReadFrom(b); err != nil {
			panic(err)
		}
		s := fmt.Sprintf("v%d type=%s gen=%d%s%s", v.Version, v.ProtocolType, v.Generation, opt("protocol", v.Protocol), opt("leader", v.Leader))
		for _, m := range v.Members {
			s += fmt.Sprintf(" [%s%s %s %s]", m.MemberID, opt("instance", m.InstanceID), printMeta(m.Subscription), printAssignment(m.Assignment))
		}
		return s
	}
	return printConsumerValue(kind, b)
}
