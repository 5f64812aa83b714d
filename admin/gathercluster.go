package admin

import (
	"strconv"

	"github.com/tierbroker/tierbroker/cluster"
)

var (
	descBrokers    = desc("cluster_brokers", "Living brokers that this process sees.")
	descTopics     = desc("cluster_topics", "Topics in the cluster.")
	descController = desc("cluster_controller_id", "Id of the leading controller, -1 when there is none.")

	descClusterStates = desc("cluster_partitions", "Partitions of the cluster, by state.", "state")
	descUnserved      = desc("cluster_partitions_unserved", "Partitions of the cluster that nobody serves, by why: waiting (for their dead broker, whose disk may hold the only copy), failing over, restarting, being opened, failed, unplaced, being deleted.", "problem")
	descTopicUnserved = desc("topic_partitions_unserved", "Partitions of a topic, in the whole cluster, that nobody serves.", "topic")
	descOwned         = desc("cluster_broker_partitions", "Partitions that a broker owns, as the cluster's state says.", "broker")
	descMoves         = desc("cluster_moves", "Moves of partitions, by state: waiting, warming, draining, opening, stuck.", "state")
	descEpochs        = desc("cluster_epochs", "Ownerships that have begun, of all partitions there are: it rises by one when a partition changes hands or is taken up again.")
	descTopicEpochs   = desc("topic_epochs", "The same of a topic's partitions.", "topic")

	descLeading     = desc("controller_leading", "1 while this node leads as the controller.")
	descTerms       = desc("controller_terms_total", "Elections that this node has won.")
	descChanges     = desc("controller_changes_total", "Changes made by this node as the controller, by kind: place, restart, retry, failover, force, begin_move, stop_move, pin, end_wish, free_name.", "kind")
	descHandOvers   = desc("controller_moves_total", "Moves that ended at their target while this node led.")
	descMoveSeconds = desc("controller_move_seconds_total", "Time those took, from the choice of the target to the hand-over.")
	descLostChanges = desc("controller_lost_changes_total", "Changes that were planned on an old picture and not made.")
	descFailedPlans = desc("controller_failed_plans_total", "Plans that could not be written.")
	descPlans       = desc("controller_plans_total", "Plans computed.")
	descPlanSeconds = desc("controller_plan_seconds_total", "Time they took.")

	descLeaseValid = desc("lease_valid_seconds", "Time for which the lease in etcd is certainly valid; negative: since when it may have ended, and nothing is confirmed that rests on it.")
	descLeaseTTL   = desc("lease_ttl_seconds", "Length of the lease.")
	descLeaseAge   = desc("lease_age_seconds", "Time since the lease was taken, that is, since this run joined the cluster.")

	descWALNext     = desc("wal_objects_total", "WAL objects begun by this run.")
	descWALLag      = desc("wal_unacknowledged_objects", "Of those, not acknowledged by the bucket.")
	descWALInFlight = desc("wal_uploads_in_flight", "Uploads under way.")
	descWALRetries  = desc("wal_upload_retries_total", "Attempts to upload that failed and were repeated.")
	descWALLatency  = desc("wal_upload_seconds", "Time that the last acknowledged upload took.")
	descWALQueued   = desc("wal_queued_bytes", "Bytes in the local log that wait for the next WAL object.")
	descWALPending  = desc("wal_pending_bytes", "Bytes whose acks wait for the bucket: queued ones and those being uploaded.")
	descWALLive     = desc("wal_live_objects", "WAL objects of this run that are in the bucket.")
	descWALBytes    = desc("wal_live_bytes", "Bytes of those.")
	descWALNeeded   = desc("wal_needed_objects", "Of those, with records that are in no data object yet.")
	descWALSealed   = desc("wal_sealed", "1 when another broker has ended this run's stream: it can acknowledge nothing more.")
)

func (g gatherer) cluster(e emitter, a *api) {
	image := a.Cluster.Image()
	e.gauge(descBrokers, float64(len(image.Brokers())))
	e.gauge(descTopics, float64(len(image.Topics())))
	e.gauge(descController, float64(image.ControllerID()))
	r := a.readiness()
	e.gauge(descReady, boolean(r.Ready))
	e.gauge(descProblems, float64(len(r.Problems)))
	s := tallyOf(image)
	for state := cluster.Unassigned; state <= cluster.Deleted; state++ {
		e.gauge(descClusterStates, float64(s.states[stateName(state)]), stateName(state))
	}
	for _, ail := range ailments {
		e.gauge(descUnserved, float64(s.ailments[ail]), ail)
	}
	for _, t := range s.topics {
		e.gauge(descTopicUnserved, float64(t.ill), t.topic.Name)
		e.gauge(descTopicEpochs, float64(t.epochs), t.topic.Name)
	}
	for id, b := range s.brokers {
		e.gauge(descOwned, float64(b.partitions), strconv.Itoa(int(id)))
	}
	e.gauge(descEpochs, float64(s.epochs))
	moves := map[string]int{moveWaiting: 0, moveWarming: 0, moveDraining: 0, moveOpening: 0, moveStuck: 0}
	for _, m := range a.moveList(image) {
		moves[m.State]++
	}
	for state, n := range moves {
		e.gauge(descMoves, float64(n), state)
	}
	if a.Node != nil {
		g.node(e, a)
	}
}

func (g gatherer) node(e emitter, a *api) {
	if l, ok := a.Node.Lease(); ok {
		e.gauge(descLeaseValid, l.Valid.Seconds())
		e.gauge(descLeaseTTL, l.TTL.Seconds())
		e.gauge(descLeaseAge, float64(max(a.Now()-l.Since, 0))/1000)
	}
	if c, ok := a.Node.Controller(); ok {
		e.gauge(descLeading, boolean(c.Leading))
		e.counter(descTerms, c.Terms)
		for kind, n := range c.Changes {
			e.counter(descChanges, n, kind.String())
		}
		e.counter(descHandOvers, c.Moves)
		e.seconds(descMoveSeconds, c.MoveTime)
		e.counter(descLostChanges, c.Lost)
		e.counter(descFailedPlans, c.Failed)
		e.counter(descPlans, c.Plans)
		e.seconds(descPlanSeconds, c.PlanTime)
	}
	if w, ok := a.Node.Stream(); ok {
		e.counter(descWALNext, int64(w.Next))
		e.gauge(descWALLag, float64(w.Next-min(w.Acked, w.Next)))
		e.gauge(descWALInFlight, float64(w.InFlight))
		e.counter(descWALRetries, int64(w.Retries))
		e.gauge(descWALLatency, w.LastLatency.Seconds())
		e.gauge(descWALQueued, float64(w.QueuedBytes))
		e.gauge(descWALPending, float64(w.PendingBytes))
		e.gauge(descWALLive, float64(w.LiveObjects))
		e.gauge(descWALBytes, float64(w.LiveBytes))
		e.gauge(descWALNeeded, float64(w.NeededObjects))
		e.gauge(descWALSealed, boolean(w.Sealed))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
