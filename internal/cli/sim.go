package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/version"
)

// simFlags are those of `grange sim`.
type simFlags struct {
	o               sim.Options
	tokenFile, dir  string
	memory          string
	images, bridges []string
	sockets, cores  int
}

func (a *app) simCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use: "sim --server URL --token-file FILE", Short: "Run hosts that are not there, to size a server",
		Args: cobra.NoArgs,
		Long: `Runs many hosts in one process that are not there. Each joins with a token (` + "`grange host token create --count N`" + `), has a certificate and
connections of its own, and carries out what is wanted of it by saying so. The server does for them all that it does for real ones: give them a
cell that no user's VMs go to. It runs until it is stopped; with --dir the same hosts come back another time.`,
		Example: "  grange host token create --cell trial --count 1000 >token\n  grange sim --hosts 1000 --server " +
			"https://server.example.org:7480 --token-file token --churn 2",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runSim(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.o.Hosts, "hosts", 100, "how many")
	flags.StringVar(&f.o.Prefix, "prefix", "sim-", "what their names begin with")
	flags.StringVar(&f.tokenFile, "token-file", "",
		"`FILE` with a join token for as many hosts; - reads it from standard input")
	flags.StringVar(&f.dir, "dir", "", "`DIRECTORY` that keeps their identities; a temporary one when not given")
	flags.DurationVar(&f.o.Host.Delay, "delay", time.Second, "how long each step of a VM takes")
	flags.Float64Var(&f.o.Host.Failing, "failing", 0, "share of starts of VMs that fail, 0 to 1")
	flags.Float64Var(&f.o.Churn, "churn", 0, "agents that are started anew, a second")
	flags.IntVar(&f.sockets, "sockets", 2, "of each host, each a NUMA node")
	flags.IntVar(&f.cores, "cores", 16, "of each socket, with two threads each")
	flags.StringVar(&f.memory, "memory", "256G", "of each host")
	flags.StringSliceVar(&f.images, "image", []string{"micro"}, "`IMAGES` that they say they have")
	flags.StringSliceVar(&f.bridges, "bridge", []string{"br0"}, "`BRIDGES` that they say they have")
	return cmd
}

func (a *app) runSim(ctx context.Context, f simFlags) error {
	if a.server == "" || f.o.Hosts < 1 || f.o.Hosts > 100_000 || f.sockets < 1 || f.cores < 1 {
		return usage("grange sim --hosts 100 --server https://HOST:PORT --token-file FILE",
			"a server, and 1 to 100000 hosts of some cores, are needed")
	}
	memory, err := farm.ParseBytes(f.memory)
	if err != nil {
		return err
	}
	if f.tokenFile != "" {
		if f.o.Token, err = joinToken(f.tokenFile); err != nil {
			return err
		}
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "grange-sim-"); err != nil {
			return err
		}
		defer os.RemoveAll(f.dir)
	}
	if f.o.Dir, err = os.OpenRoot(f.dir); err != nil {
		return err
	}
	defer f.o.Dir.Close()
	if err := manyFiles(); err != nil {
		return err
	}
	var lists atomic.Int64
	f.o.Server, f.o.Log = a.server, slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	f.o.Told = func(int, fleet.WantedList) { lists.Add(1) }
	f.o.Host.Version, f.o.Host.Images, f.o.Host.Networks = version.String(), f.images, f.bridges
	f.o.Host.Hardware = sim.Hardware{Sockets: f.sockets, Cores: f.cores, Memory: memory}
	fake := sim.New(f.o)
	begun := time.Now()
	if err := fake.Join(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s joined in %v\n", farm.Count(fake.Joined(), "host"),
		time.Since(begun).Round(time.Millisecond))
	go a.tellLists(ctx, &lists)
	return fake.Run(ctx)
}

// tellLists says once in a while how many wanted lists came.
func (a *app) tellLists(ctx context.Context, lists *atomic.Int64) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Fprintf(a.out, "%d wanted lists so far\n", lists.Load())
		}
	}
}

// manyFiles lets this process have as many connections as the system allows it.
func manyFiles() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
