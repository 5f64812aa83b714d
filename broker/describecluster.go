package broker

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Operations that a client may do on a resource, as bit sets of Kafka's ACL operations: without an authorizer, all
// that the resource has.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11 // read, write, create, delete, alter, describe, describe and alter configs
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12       // create, alter, describe, cluster action, describe and alter configs, idempotent write
	notAsked          = math.MinInt32
)

// Endpoint types of DescribeCluster.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// describeCluster answers DescribeCluster, versions 0 to 2. Living brokers only: a broker without its lease is not in
// the cluster's state, so there are no fenced ones to list.
func (b *Broker) describeCluster(_ context.Context, c *call, req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType = endpointBrokers
	if c.Version >= 1 && req.EndpointType != endpointBrokers {
		e := kerr.UnsupportedEndpointType
		msg := "unsupported endpoint type"
		if req.EndpointType == endpointControllers {
			e, msg = kerr.MismatchedEndpointType, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
		}
		resp.ErrorCode, resp.ErrorMessage = b.failed(c, e.Code), &msg
		return resp
	}
	img := b.o.Cluster.Image()
	resp.ClusterID, resp.ControllerID = img.ClusterID(), controllerFor(img)
	for _, o := range img.Brokers() {
		at := b.address(&o, c.listener())
		n := kmsg.NewDescribeClusterResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack = o.ID, at.Host, at.Port, rack(&o)
		resp.Brokers = append(resp.Brokers, n)
	}
	resp.ClusterAuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}
