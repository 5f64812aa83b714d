package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newBroker(g *globals) *cobra.Command {
	return group("broker", "Brokers: list, describe, drain, undrain, remove",
		`Shows brokers and empties them. A broker is drained before its maintenance: its
partitions move to others, which copies nothing and interrupts each for well under
a second. A broker that leaves for good is removed.`,
		`  tierctl broker list
  tierctl broker drain 3          # then stop it, do the work, start it
  tierctl broker undrain 3
  tierctl broker remove 4`,
		newBrokerList(g), newBrokerDescribe(g), newBrokerDrain(g), newBrokerUndrain(g), newBrokerRemove(g))
}

func brokerID(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, usagef("%q is not the id of a broker (tierctl broker list shows them)", text)
	}
	return int32(n), nil
}

func (g *globals) adminBroker(ctx context.Context, id int32) (*admin.BrokerDetail, error) {
	d := new(admin.BrokerDetail)
	return d, g.call(ctx, http.MethodGet, fmt.Sprintf("/api/v1/brokers/%d", id), nil, d)
}

// wishBroker asks for drain, undrain or remove.
func (g *globals) wishBroker(ctx context.Context, id int32, what, why string) (*admin.BrokerDetail, error) {
	d := new(admin.BrokerDetail)
	body := map[string]string{}
	if why != "" {
		body["why"] = why
	}
	return d, g.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/brokers/%d/%s", id, what), body, d)
}
