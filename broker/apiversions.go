package broker

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/kafka"
)

// apiVersions is what ApiVersions answers, computed once from the table.
type apiVersions []kmsg.ApiVersionsResponseApiKey

func computeVersions(table []api) apiVersions {
	v := make(apiVersions, 0, len(table))
	for i := range table {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = table[i].key, table[i].advertised, table[i].max
		v = append(v, k)
	}
	return v
}

// apiVersions answers ApiVersions, versions 0 to 4. No feature is finalized: metadata.version, kraft.version,
// transaction.version and group.version describe things that this broker doesn't have, and clients act on them (a
// transaction.version of 2 makes producers use the protocol of KIP-890 part 2).
func (b *Broker) apiVersions(_ context.Context, c *call, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if c.Version >= 3 && !(validSoftware(req.ClientSoftwareName) && validSoftware(req.ClientSoftwareVersion)) {
		resp.ErrorCode = b.failed(c, kerr.InvalidRequest.Code)
		return resp
	}
	if c.Conn != nil {
		c.Conn.SetSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	resp.ApiKeys = b.versions
	return resp
}

// unsupportedApiVersions answers a version that this broker doesn't know: a body of version 0 with the versions of
// ApiVersions, which every client can read (KIP-511).
func (b *Broker) unsupportedApiVersions() kafka.Pending {
	b.metrics.Failed(int16(kmsg.ApiVersions), kerr.UnsupportedVersion.Code)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	for _, k := range b.versions {
		if k.ApiKey == int16(kmsg.ApiVersions) {
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	return kafka.Done{Bufs: net.Buffers{resp.AppendTo(nil)}}
}

// validSoftware holds Kafka's rule for client software names and versions:
// letters, digits, dots and dashes, neither starting nor ending with a dot or dash.
func validSoftware(s string) bool {
	for i := range len(s) {
		ch := s[i]
		switch {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9':
		case (ch == '.' || ch == '-') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
