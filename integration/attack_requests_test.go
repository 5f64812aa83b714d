package integration

import (
	bigendian "encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/batch"
)

var (
	attackSeed   = flag.Uint64("attack-seed", 0, "seed of TestAttackRequests (default: the time)")
	attackRounds = flag.Int("attack-rounds", 12, "requests of each API and version in TestAttackRequests")
)

// attackNames are what the attackers call things by; never what the polite clients use.
var attackNames = []string{"victim", "victim", "victim", "", "x", "1", "consumer", "range", "ünïcode", "a/b", "..", "\x00", "no such", "__consumer_offsets",
	"retention.ms", "segment.bytes", strings.Repeat("n", 300), "4d60f504-0000-4000-8000-000000000000"}

// fuzzer fills requests with values that are likely to reach some code, and spoils them.
type fuzzer struct{ *rand.Rand }

func (f fuzzer) fill(v reflect.Value, name string, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if n := v.Type().Field(i).Name; n != "Version" && n != "UnknownTags" {
				f.fill(v.Field(i), n, depth)
			}
		}
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.String:
		v.SetString(attackNames[f.IntN(len(attackNames))])
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.number(v.Type().Bits(), strings.HasSuffix(name, "Millis")))
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, -1, math.Inf(1), math.NaN()}[f.IntN(5)])
	case reflect.Pointer:
		if f.IntN(3) > 0 && depth < 6 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), name, depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).Set(reflect.ValueOf(byte(f.Uint32())).Convert(v.Type().Elem()))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(f.bytes())
			return
		}
		if depth < 6 && f.IntN(8) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1+f.IntN(2), 2))
			for i := range v.Len() {
				f.fill(v.Index(i), name, depth+1)
			}
		}
	}
}

// number is mostly a small one, since they mean something; times are short, for the test's sake.
func (f fuzzer) number(bits int, short bool) int64 {
	switch n := f.IntN(12); {
	case short && n < 11:
		return int64(f.IntN(40))
	case n < 9:
		return int64(f.IntN(5) - 1)
	case n < 10:
		return int64(f.IntN(4000))
	case n < 11:
		return math.MaxInt64 >> (64 - bits)
	default:
		return math.MinInt64 >> (64 - bits)
	}
}

// bytes is a record batch, or not.
func (f fuzzer) bytes() []byte {
	b := batch.NewBuilder(batch.Codec(f.IntN(5)), batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
	for range 1 + f.IntN(3) {
		b.Add(time.Now().UnixMilli(), nil, []byte("a record of an attacker"), nil)
	}
	all := b.Bytes()
	switch f.IntN(4) {
	case 0:
		return nil
	case 1:
		return f.spoil(all)
	}
	return all
}

// spoil changes a few places.
func (f fuzzer) spoil(b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + f.IntN(4) {
		if len(b) == 0 {
			return []byte{byte(f.Uint32())}
		}
		i := f.IntN(len(b))
		switch f.IntN(8) {
		case 0:
			b = b[:i]
		case 1, 2:
			b[i] ^= 1 << f.IntN(8)
		case 3:
			b[i] = 0xff
		case 4:
			if i+4 <= len(b) {
				bigendian.BigEndian.PutUint32(b[i:], []uint32{math.MaxInt32, math.MaxUint32, 1 << 31, 0, 1 << 20}[f.IntN(5)])
			}
		case 5:
			if i+2 <= len(b) {
				bigendian.BigEndian.PutUint16(b[i:], []uint16{math.MaxInt16, math.MaxUint16, 1 << 15, 0}[f.IntN(4)])
			}
		case 6: // the longest number of variable length
			b = append(b[:i:i], append([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, b[i:]...)...)
		case 7:
			b = append(b, b[i:]...)
		}
	}
	return b
}

// shot is one request of an attacker.
type shot struct {
	key, version int16
	round        int
}

// tally counts what became of the attackers' requests.
type tally struct {
	mu                       sync.Mutex
	answered, closed, silent int
	refused                  []string // sound requests whose connection was closed
}

// Every API in every version, sound and spoiled: the broker answers or hangs up, and others notice nothing.
func TestAttackRequests(t *testing.T) {
	seed := *attackSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (-attack-seed)", seed)
	s := besiege(t)
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.ClientSoftwareName, ask.ClientSoftwareVersion = "attack", "1"
	resp, err := newWire(t, s.node).request(ask)
	require.NoError(t, err)
	var shots []shot
	keys := resp.(*kmsg.ApiVersionsResponse).ApiKeys
	require.Greater(t, len(keys), 25)
	for _, k := range keys {
		require.NotNil(t, kmsg.RequestForKey(k.ApiKey), "API %d", k.ApiKey)
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			for round := range *attackRounds {
				shots = append(shots, shot{k.ApiKey, v, round})
			}
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shots), func(i, j int) { shots[i], shots[j] = shots[j], shots[i] })
	const attackers = 12
	var all sync.WaitGroup
	n := &tally{}
	for a := range attackers {
		all.Go(func() {
			var c *raw
			for i := a; i < len(shots) && !t.Failed(); i += attackers {
				c = s.shoot(c, shots[i], seed, n)
			}
		})
	}
	all.Wait()
	s.progress()
	t.Logf("%d requests of %d APIs: %d answered, %d hung up on, %d left waiting", len(shots), len(keys), n.answered, n.closed, n.silent)
	require.Empty(t, n.refused, "sound requests whose connection was closed")
	require.Greater(t, n.answered, len(shots)/4, "the requests reach nothing")
	s.lift("requests")
}

// shoot sends one request, over the given connection if there is one, and returns the connection when it is still good.
func (s *siege) shoot(c *raw, x shot, seed uint64, n *tally) *raw {
	f := fuzzer{rand.New(rand.NewPCG(seed, uint64(x.key)<<32|uint64(x.version)<<16|uint64(x.round)))}
	req := kmsg.RequestForKey(x.key)
	req.SetVersion(x.version)
	f.fill(reflect.ValueOf(req).Elem(), "", 0)
	body := req.AppendTo(nil)
	if x.round > 0 {
		body = f.spoil(body)
	}
	if c == nil {
		conn, err := net.DialTimeout("tcp", s.kafka, attackPause)
		if err != nil {
			s.t.Errorf("dial: %v", err)
			return nil
		}
		c = &raw{Conn: conn}
	}
	err := c.frame(x.key, x.version, req.IsFlexible(), body)
	if err == nil {
		_, err = c.answer(300 * time.Millisecond)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var late net.Error
	switch {
	case err == nil:
		n.answered++
		return c
	case errors.As(err, &late) && late.Timeout(): // a long wait, or acks=0
		n.silent++
	default:
		n.closed++
		if x.round == 0 && x.key != 0 { // a producer with acks=0 learns of errors by this
			n.refused = append(n.refused, fmt.Sprintf("%s %d: %v", kmsg.NameForKey(x.key), x.version, err))
		}
	}
	if err := c.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	return nil
}
