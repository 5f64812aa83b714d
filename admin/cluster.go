package admin

import (
	"net/http"

	"github.com/tierbroker/tierbroker/partition"
)

// ClusterInfo is the answer of /api/v1/cluster.
type ClusterInfo struct {
	ClusterID    string         `json:"cluster_id"`
	BrokerID     int32          `json:"broker_id"`
	ControllerID int32          `json:"controller_id"`
	Version      string         `json:"version"`
	Bucket       string         `json:"bucket"`
	Revision     int64          `json:"revision"`
	StartedAt    int64          `json:"started_at"`
	Now          int64          `json:"now"`
	Brokers      int            `json:"brokers"`
	Topics       int            `json:"topics"`
	Partitions   map[string]int `json:"partitions"` // of this broker, by state
	Connections  int            `json:"connections"`
	LocalBytes   int64          `json:"local_bytes"`
	ArchiveBytes int64          `json:"archive_bytes"`
	Disk         DiskUsage      `json:"disk"`
	Cache        CacheStats     `json:"cache"`
	Requests     []APITraffic   `json:"requests"`
	BucketCalls  []BucketCall   `json:"bucket_calls"`
	Health       Readiness      `json:"health"`
}

func (a *api) cluster(w http.ResponseWriter, _ *http.Request) {
	image := a.Cluster.Image()
	info := ClusterInfo{
		ClusterID: image.ClusterID(), BrokerID: a.BrokerID, ControllerID: image.ControllerID(), Version: a.Version,
		Bucket: a.Bucket, Revision: image.Revision(), StartedAt: a.Metrics.startedAt, Now: a.Now(),
		Brokers: len(image.Brokers()), Topics: len(image.Topics()), Partitions: map[string]int{},
		Requests: a.Metrics.apiTraffic(), BucketCalls: a.Metrics.bucketCalls(), Health: a.readiness(),
	}
	if a.Partitions != nil {
		a.Partitions.Stats(func(s partition.Stats) bool {
			info.Partitions[s.State.String()]++
			info.LocalBytes += s.LocalBytes
			info.ArchiveBytes += s.ArchiveBytes
			return true
		})
		info.Cache = a.Local.Cache()
		info.Disk = a.Local.Disk()
		info.Connections = a.Local.Connections()
	}
	writeJSON(w, http.StatusOK, info)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (a *api) config(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"config": a.Config})
}

func (a *api) segments(w http.ResponseWriter, _ *http.Request) {
	files := a.Local.Files()
	if files == nil {
		files = []LogFile{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"files": files, "disk": a.Local.Disk()})
}
