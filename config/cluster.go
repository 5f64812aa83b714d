package config

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Member is one controller of a quorum.
type Member struct {
	ID   int32
	Host string // as other nodes reach it
	Port int32  // of its etcd's peer listener
}

// Quorum returns the members that controllers lists, in that order; nil when it
// is empty.
func (c *Config) Quorum() ([]Member, error) {
	var list []Member
	for _, item := range c.Controllers {
		m, err := parseMember(item)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func parseMember(item string) (Member, error) {
	id, addr, ok := strings.Cut(item, "@")
	if !ok {
		return Member{}, fmt.Errorf("%q is not ID@HOST:PORT", item)
	}
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil || n < 1 {
		return Member{}, fmt.Errorf("%q: %q is no broker-id", item, id)
	}
	host, port, err := splitHostPort(addr)
	switch {
	case err != nil:
		return Member{}, fmt.Errorf("%q: %w", item, err)
	case isWildcard(host) || port == 0:
		return Member{}, fmt.Errorf("%q: name the host and port that the other controllers reach", item)
	}
	return Member{ID: int32(n), Host: host, Port: port}, nil
}

func checkControllers(v string) error {
	ids := make(map[int32]bool)
	for _, item := range splitList(v) {
		m, err := parseMember(item)
		if err != nil {
			return err
		}
		if ids[m.ID] {
			return fmt.Errorf("controller %d is listed twice", m.ID)
		}
		ids[m.ID] = true
	}
	return nil
}

func checkOptionalAddress(v string) error {
	if v == "" {
		return nil
	}
	return checkAddress(v)
}

// ReachedAt turns the address of a listener into HOST:PORT as other nodes reach
// it: a wildcard host becomes the advertised one. bound gives the port when the
// setting has port 0; nil when it is not known.
func (c *Config) ReachedAt(listen string, bound net.Addr) string {
	host, port, err := splitHostPort(listen)
	if err != nil {
		return ""
	}
	if tcp, ok := bound.(*net.TCPAddr); ok && port == 0 {
		port = int32(tcp.Port)
	}
	if isWildcard(host) {
		if h, _, err := splitAdvertise(c.Advertise); err == nil && h != "" {
			host = h
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// securityKeys are what cluster-security may hold.
var securityKeys = []string{"etcd-ca", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file", "peer-ca", "peer-cert", "peer-key", "peer-secret-file"}

// checkCluster holds the rules that join the settings of the cluster.
func (c *Config) checkCluster(add func(name, format string, args ...any)) {
	inside := c.HasRole(RoleController) && len(c.EtcdEndpoints) == 0
	own := func(m string) bool { return strings.HasPrefix(m, fmt.Sprintf("%d@", c.BrokerID)) }
	switch {
	case !c.HasRole(RoleController) && len(c.EtcdEndpoints) == 0:
		add("etcd-endpoints", "must be set when roles lacks %q: without that role no etcd runs in this process", RoleController)
	case c.EtcdListen != "" && !inside:
		add("etcd-listen", "is for the etcd inside a controller, and none runs here: etcd-endpoints names another one")
	case len(c.Controllers) > 0 && !inside:
		add("controllers", "is for controllers with an etcd inside, and none runs here: etcd-endpoints names another one")
	case len(c.Controllers) > 0 && c.EtcdListen == "":
		add("etcd-listen", "must be set with controllers: brokers reach the quorum there")
	case len(c.Controllers) > 0 && !slices.ContainsFunc(c.Controllers, own):
		add("controllers", "does not list this node (broker-id %d)", c.BrokerID)
	}
	c.checkSecurity(func(format string, args ...any) { add("cluster-security", format, args...) })
}

func (c *Config) checkSecurity(add func(format string, args ...any)) {
	m := c.ClusterSecurity
	for _, key := range sortedKeys(m) {
		if !slices.Contains(securityKeys, key) {
			near := ""
			if n := nearest(key, securityKeys); n != "" {
				near = fmt.Sprintf("; did you mean %q?", n)
			}
			add("unknown key %q%s", key, near)
			continue
		}
		if key == "etcd-user" {
			continue
		}
		if _, err := os.Stat(m[key]); err != nil {
			add("%s: %v", key, err)
		}
	}
	for _, pair := range [][2]string{{"etcd-cert", "etcd-key"}, {"peer-cert", "peer-key"}, {"etcd-user", "etcd-password-file"}} {
		if (m[pair[0]] == "") != (m[pair[1]] == "") {
			add("%s and %s belong together", pair[0], pair[1])
		}
	}
	if c.EtcdListen != "" && m["etcd-ca"] != "" && m["etcd-cert"] == "" {
		add("etcd-listen with etcd-ca needs etcd-cert and etcd-key too")
	}
	if c.PeerListen != "" && m["peer-ca"] != "" && m["peer-cert"] == "" {
		add("peer-listen with peer-ca needs peer-cert and peer-key too")
	}
}
