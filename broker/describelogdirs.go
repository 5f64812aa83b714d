package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
)

// describeLogDirs answers DescribeLogDirs, versions 0 to 4: one directory, with the local size of each partition here
// and the totals of the file system (KIP-827). Null topics mean all of them.
func (b *Broker) describeLogDirs(_ context.Context, c *call, req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	img := b.o.Cluster.Image()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = b.o.DataDir, -1, -1
	if b.o.Disk != nil {
		total, usable, err := b.o.Disk()
		if err != nil {
			b.log.Warn("size of the data directory's file system is unknown", zap.Error(err))
			dir.ErrorCode = b.failed(c, kerr.KafkaStorageError.Code)
		} else {
			dir.TotalBytes, dir.UsableBytes = total, usable
		}
	}
	if req.Topics == nil {
		for _, t := range img.Topics() {
			b.addLocal(&dir, t, nil)
		}
	}
	for i := range req.Topics {
		if t, unknown := findTopic(img, false, req.Topics[i].Topic, [16]byte{}); unknown == nil {
			b.addLocal(&dir, t, &req.Topics[i])
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// addLocal lists the partitions of a topic that are on this broker, all of them or those asked for.
func (b *Broker) addLocal(dir *kmsg.DescribeLogDirsResponseDir, t *cluster.Topic, asked *kmsg.DescribeLogDirsRequestTopic) {
	out := kmsg.NewDescribeLogDirsResponseDirTopic()
	out.Topic = t.Name
	add := func(i int32) {
		p, missing := b.find(t, i)
		if missing != nil {
			return
		}
		a := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		a.Partition, a.Size = i, p.Stats().LocalBytes
		out.Partitions = append(out.Partitions, a)
	}
	if asked == nil {
		for i := range t.Partitions {
			add(i)
		}
	} else {
		for _, i := range asked.Partitions {
			add(i)
		}
	}
	if len(out.Partitions) > 0 {
		dir.Topics = append(dir.Topics, out)
	}
}
