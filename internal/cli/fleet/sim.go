package fleet

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
	"github.com/grange-project/grange/internal/cli/app"
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

// simCommands are the commands of hosts that are not there.
type simCommands struct{ *app.App }

func (a simCommands) simCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use: "sim --server URL --token-file FILE", Short: "Simulate many hosts, to size a server",
		Args: cobra.NoArgs,
		Long: "Simulate many hosts in one process. Each host joins with a token\n" +
			"(`grange host token create --count N`), has its own certificate and connections, and reports\n" +
			"every change that is requested of it as done. The server treats these hosts like real ones:\n" +
			"put them in a cell to which no user's VMs go. The command runs until it is stopped. With\n" +
			"--dir, the same hosts return in the next run.",
		Example: "  grange host token create --cell trial --count 1000 >token\n  grange sim --hosts 1000 --server " +
			"https://server.example.org:7480 --token-file token --churn 2",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runSim(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.o.Hosts, "hosts", 100, "number of hosts")
	flags.StringVar(&f.o.Prefix, "prefix", "sim-", "prefix of the hosts' names")
	flags.StringVar(&f.tokenFile, "token-file", "",
		"`FILE` with a join token for that many hosts; - reads standard input")
	flags.StringVar(&f.dir, "dir", "", "`DIRECTORY` that stores the hosts' identities (default: a temporary one)")
	flags.DurationVar(&f.o.Host.Delay, "delay", time.Second, "duration of each step of a VM")
	flags.Float64Var(&f.o.Host.Failing, "failing", 0, "fraction of VM starts that fail, 0 to 1")
	flags.Float64Var(&f.o.Churn, "churn", 0, "agents that are restarted per second")
	flags.IntVar(&f.sockets, "sockets", 2, "sockets per host, each a NUMA node")
	flags.IntVar(&f.cores, "cores", 16, "cores per socket, with two threads each")
	flags.StringVar(&f.memory, "memory", "256G", "memory `SIZE` of each host")
	flags.StringSliceVar(&f.images, "image", []string{"micro"}, "`IMAGES` that the hosts report")
	flags.StringSliceVar(&f.bridges, "bridge", []string{"br0"}, "`BRIDGES` that the hosts report")
	return cmd
}

func (a simCommands) runSim(ctx context.Context, f simFlags) error {
	if a.Server == "" || f.o.Hosts < 1 || f.o.Hosts > 100_000 || f.sockets < 1 || f.cores < 1 {
		return app.Usage("grange sim --hosts 100 --server https://HOST:PORT --token-file FILE",
			"a server, and 1 to 100000 hosts of some cores, are needed")
	}
	memory, err := farm.ParseBytes(f.memory)
	if err != nil {
		return err
	}
	if f.tokenFile != "" {
		if f.o.Token, err = app.JoinToken(f.tokenFile); err != nil {
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
	f.o.Server, f.o.Log = a.Server, slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	f.o.Told = func(int, fleet.WantedList) { lists.Add(1) }
	f.o.Host.Version, f.o.Host.Images, f.o.Host.Networks = version.String(), f.images, f.bridges
	f.o.Host.Hardware = sim.Hardware{Sockets: f.sockets, Cores: f.cores, Memory: memory}
	fake := sim.New(f.o)
	begun := time.Now()
	if err := fake.Join(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s joined in %v\n", farm.Count(fake.Joined(), "host"),
		time.Since(begun).Round(time.Millisecond))
	go a.tellLists(ctx, &lists)
	return fake.Run(ctx)
}

// tellLists says once in a while how many wanted lists came.
func (a simCommands) tellLists(ctx context.Context, lists *atomic.Int64) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Fprintf(a.Out, "%d wanted lists so far\n", lists.Load())
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
