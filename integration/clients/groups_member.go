package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A member program is one member of a group in one process. It is told by its environment:
// TIERBROKER_BOOTSTRAP, MEMBER_TOPIC, MEMBER_GROUP, MEMBER_ID (client id), MEMBER_INSTANCE (empty,
// or the group.instance.id), MEMBER_STRATEGY (range, roundrobin, sticky, cooperative),
// MEMBER_PROTOCOL (classic, consumer) and MEMBER_SESSION_MS. It leaves in order when its standard
// input ends, and prints its events as lines of JSON:
//
//	{"e":"assigned","t":T,"p":[0,1]}        these came, it owns them from now on
//	{"e":"revoked","t":T,"p":[0]}           it no longer does; before the broker may know
//	{"e":"lost","t":T,"p":[1]}              the same, but told that it had been thrown out
//	{"e":"records","t":T,"r":{"0":[5,9,5]}} processed offsets 5 to 9, five records; then it commits
//	{"e":"note","t":T,"m":"..."}            anything else, such as a commit that was refused
//
// T is the machine's clock in microseconds.
type event struct {
	What       string             `json:"e"`
	Time       int64              `json:"t"`
	Partitions []int32            `json:"p"`
	Records    map[int32][3]int64 `json:"r"`
	Text       string             `json:"m"`

	who       string
	committed map[int32]int64 // of the suite's own events "committed": what the broker answered
}

// leaveLimit is how long a member may take to leave in order.
const leaveLimit = 45 * time.Second

// member is a running member program.
type member struct {
	id, instance string
	cmd          *exec.Cmd
	stdin        io.Closer
	stderr       tail
	drained      chan struct{} // closed when all it printed has been read
}

// launch starts a member program; every event goes to see, in order.
func launch(command, env []string, id, instance string, see func(event)) (*member, error) {
	m := &member{id: id, instance: instance, cmd: exec.Command(command[0], command[1:]...), drained: make(chan struct{})}
	m.cmd.Env = append(append(os.Environ(), env...), "MEMBER_ID="+id, "MEMBER_INSTANCE="+instance)
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is ours to act on
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Cmd.Wait would close its own while the last lines are being read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m.stdin, m.cmd.Stdout = in, w
	err = m.cmd.Start()
	w.Close() //nolint:errcheck // the member has its own
	if err != nil {
		r.Close() //nolint:errcheck // the first error is the one to tell
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	go func() {
		defer close(m.drained)
		defer r.Close()
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			e := event{}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{What: "broken", Time: time.Now().UnixMicro(), Text: fmt.Sprintf("%v in %.80q", err, lines.Text())}
			}
			e.who = id
			see(e)
		}
	}()
	return m, nil
}

// kill is kill -9. What the member owned is free from when it is gone.
func (m *member) kill(see func(event)) {
	m.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself; Wait tells
	m.cmd.Wait()         //nolint:errcheck // the same
	<-m.drained
	see(event{What: "gone", who: m.id, Time: time.Now().UnixMicro()})
}

// leave has the member leave the group and end.
func (m *member) leave(see func(event)) error {
	m.stdin.Close() //nolint:errcheck // it may have ended by itself; Wait tells
	late := time.AfterFunc(leaveLimit, func() { m.cmd.Process.Kill() })
	err := m.cmd.Wait()
	inTime := late.Stop()
	<-m.drained
	see(event{What: "gone", who: m.id, Time: time.Now().UnixMicro()})
	switch {
	case !inTime:
		return fmt.Errorf("%s did not end within %v: %s", m.id, leaveLimit, m.stderr.String())
	case err != nil:
		return fmt.Errorf("%s: %w: %s", m.id, err, m.stderr.String())
	}
	return nil
}
