// Command benchfleet measures a server with many hosts on it: they are not there (package sim), but each has its own
// certificate and connections, and the server does for it all that it does for a real one. Server and hosts are
// separate processes on loopback. The last line of its output is JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sim"
)

// result is the JSON line.
type result struct {
	Hosts int     `json:"hosts"`
	RSS   float64 `json:"rss_mb"`       // of the server, in steady state; 10^6 bytes
	Peak  float64 `json:"rss_peak_mb"`  // of the server, ever
	CPU   float64 `json:"cpu_cores"`    // of the server, in steady state
	Pace  int     `json:"connect_pace"` // hosts that are switched on in a second
	// from the first connection until every host has its wanted list; Hosts/Pace of it is the pace at which they are
	// switched on
	ConnectAll float64 `json:"connect_all_s"`
	WakeAll    float64 `json:"wake_all_ms"` // from an order that concerns all hosts until every host has it
	// from the start of the server, after it was stopped, until every host has its list again; they spread themselves
	// over hosts/(125 a core) seconds, and may do so twice
	Reconnect float64 `json:"reconnect_all_s"`
	Steady    float64 `json:"steady_s"` // how long the steady state was watched
	Polls     int     `json:"lists"`    // wanted lists that were brought in all
}

func main() {
	hosts := flag.Int("hosts", 10000, "how many")
	steady := flag.Duration("steady", 30*time.Second, "how long the steady state is watched")
	limit := flag.Duration("limit", 5*time.Minute, "how long each step may take")
	pace := flag.Int("pace", sim.DefaultPace, "hosts that are switched on in a second")
	binary := flag.String("grange", "", "the `PROGRAM`; built when not given")
	keep := flag.Bool("keep", false, "leave the directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	r, err := run(ctx, *hosts, *pace, *steady, *limit, *binary, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
	if err := lastline.Print(r, 0); err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, hosts, pace int, steady, limit time.Duration, binary string, keep bool) (r result,
	err error) {
	if err := manyFiles(hosts); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "grange-benchfleet-")
	if err != nil {
		return r, err
	}
	if !keep {
		defer os.RemoveAll(dir)
	}
	s, err := newServer(ctx, dir, binary)
	if err != nil {
		return r, err
	}
	say("%d hosts enrol", hosts)
	identities, err := s.enrol(ctx, hosts)
	if err != nil {
		return r, err
	}
	defer identities.Close()
	if err := s.start(ctx); err != nil {
		return r, err
	}
	defer s.kill()
	b := &bench{server: s, hosts: newTally(hosts), limit: limit}
	fake := sim.New(sim.Options{Hosts: hosts, Pace: pace, Server: s.url, Dir: identities, Told: b.hosts.told,
		Log: slog.New(slog.DiscardHandler),
		Host: sim.HostOptions{Version: "bench", Hardware: sim.Hardware{Sockets: 2, Cores: 16, Memory: 256 * farm.GiB},
			Images: []string{"micro"}, Networks: []string{"br0"}}})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() { cancel(); <-ended }()
	begun := time.Now()
	go func() { ended <- fake.Run(ctx) }()
	r.Hosts, r.Pace, r.Steady = hosts, pace, steady.Seconds()
	return r, b.measure(ctx, &r, begun, steady)
}

// bench is one run.
type bench struct {
	server *serverProcess
	hosts  *tally
	limit  time.Duration
}

func (b *bench) measure(ctx context.Context, r *result, begun time.Time, steady time.Duration) error {
	all := func(what string, is func(fleet.WantedList) bool, since time.Time, do func() error) (time.Duration, error) {
		round := b.hosts.expect(is)
		if err := do(); err != nil {
			return 0, err
		}
		at, err := round.wait(ctx, b.limit)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
		say("%s: %v", what, at.Sub(since).Round(time.Millisecond))
		return at.Sub(since), nil
	}
	any := func(fleet.WantedList) bool { return true }
	took, err := b.hosts.first().wait(ctx, b.limit)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	r.ConnectAll = took.Sub(begun).Seconds()
	say("all connected: %v, of which they were switched on in %v", took.Sub(begun).Round(time.Millisecond),
		(time.Duration(r.Hosts) * time.Second / time.Duration(r.Pace)).Round(time.Millisecond))
	if r.CPU, r.RSS, err = b.server.watch(ctx, steady); err != nil {
		return err
	}
	say("steady: %.2f cores, %.0f MB", r.CPU, r.RSS)
	timeout := 321.0
	wake, err := all("an order reaches all", func(l fleet.WantedList) bool {
		return l.Settings.BootTimeout != nil && *l.Settings.BootTimeout == timeout
	}, time.Now(),
		func() error { return b.server.order(ctx, fleet.Settings{BootTimeout: &timeout}) })
	if err != nil {
		return err
	}
	r.WakeAll = float64(wake.Microseconds()) / 1000
	if err := b.server.stop(); err != nil {
		return err
	}
	again, err := all("all are back", any, time.Now(), func() error { return b.server.start(ctx) })
	if err != nil {
		return err
	}
	r.Reconnect = again.Seconds()
	r.Peak, r.Polls = b.server.peak(), b.hosts.lists()
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "benchfleet: "+format+"\n", args...)
}

// manyFiles raises the limit of open files; each host needs two connections at times.
func manyFiles(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	want := uint64(2*hosts + 1000)
	limit.Cur = max(limit.Cur, min(want, limit.Max))
	if limit.Max < want { // root may
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}); err == nil {
			return nil
		}
		limit.Cur = limit.Max
		say("only %d files may be open: hosts that connect at once wait for each other", limit.Max)
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

func identityFile(n int) string { return filepath.Clean(hostName(n) + ".json") }

func hostName(n int) string { return fmt.Sprintf("sim-%05d", n+1) }
