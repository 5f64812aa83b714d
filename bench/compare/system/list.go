package system

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// registered is filled by the file of each kind of broker.
var registered []System

// register announces a system; each file calls it from its init.
func register(s System) { registered = append(registered, s) }

// All lists the systems that can be compared: tierbroker first, then by name.
func All() []System {
	list := slices.Clone(registered)
	slices.SortFunc(list, func(a, b System) int {
		return cmp.Or(cmp.Compare(foreign(a), foreign(b)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func foreign(s System) int {
	if strings.HasPrefix(s.Name, "tierbroker") {
		return 0
	}
	return 1
}

// Choose picks systems by name, with commas in between; "all" and "" are all of them. A name may be the begin of several: "kafka" alone is
// that system if there is one of exactly that name, "kafka*" all whose names begin so.
func Choose(names string) ([]System, error) {
	all := All()
	if names == "" || names == "all" {
		return all, nil
	}
	var chosen []System
	for name := range strings.SplitSeq(names, ",") {
		prefix, open := strings.CutSuffix(name, "*")
		n := len(chosen)
		for _, s := range all {
			if s.Name == name || open && strings.HasPrefix(s.Name, prefix) {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) == n {
			var known []string
			for _, s := range all {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("no system %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
