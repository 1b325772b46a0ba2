package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/uplink"
	"github.com/grange-project/grange/internal/version"
)

// agentCommands are the commands of a host's agent.
type agentCommands struct{ *app.App }

func (a agentCommands) agentCommand() *cobra.Command {
	var path string
	var check bool
	cmd := &cobra.Command{
		Use: "agent", Short: "Run the agent of this host", Args: cobra.NoArgs,
		Long: `Run the agent of this host. The agent keeps the ledger of CPUs, memory and huge pages,
creates VMs through libvirt, and manages images and disks. It must run as root.

SIGHUP makes the agent read its configuration again. SIGTERM stops it; VMs continue to run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := cmd.Flags().Changed("config")
			c, err := app.ReadConfig(path, named)
			if err != nil {
				return err
			}
			if check {
				return a.checkAgent(cmd.Context(), c, path)
			}
			if cmd.Flags().Changed("socket") {
				c.Socket = a.Socket
			}
			return a.runAgent(cmd.Context(), c, path, named)
		},
	}
	cmd.Flags().StringVar(&path, "config", app.DefaultConfig,
		"configuration `FILE`; a file given here must exist; if "+app.DefaultConfig+" does not exist, defaults apply")
	cmd.Flags().BoolVar(&check, "check", false,
		"check the configuration, print what confines QEMU on this host, and exit")
	return cmd
}

// checkMungeKey finds a mistyped path before the first worker does. Whoever checks need not be able to read the key.
func checkMungeKey(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: "worker.munge_key: no file " + path,
			Hint:    "copy the cluster's munge.key to this host, root's alone"}
	}
	return nil
}

// printChecked prints what was found sound.
func printChecked(a *app.App, path string) error {
	text := path + " is sound"
	if _, err := os.Stat(path); err != nil {
		text = "no file " + path + ": all defaults hold"
	}
	_, err := fmt.Fprintln(a.Out, text)
	return err
}

func (a agentCommands) runAgent(ctx context.Context, c config.Agent, path string, named bool) error {
	log := a.ServiceLog("grange-agent")
	for _, text := range c.Renamed {
		log.Warn("an old key of the configuration", "what", text)
	}
	if c.GuestFile == "" {
		own, err := app.OwnPath()
		if err != nil {
			return err
		}
		c.GuestFile = filepath.Join(filepath.Dir(own), "grange-guest")
	}
	if _, err := os.Stat(c.GuestFile); err != nil {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: "grange-guest is not at " + c.GuestFile, Hint: "set guest_file in " + path}
	}
	driver, err := newDriver(c)
	if err != nil {
		return err
	}
	defer driver.Close()
	probeAgain, stopProbe := probeInBackground(ctx, c, driver, log)
	defer stopProbe()
	system, err := batchOf(c.Batch)
	if err != nil {
		return err
	}
	gate, err := gateOf(system, c.Batch)
	if err != nil {
		return err
	}
	identity, err := app.OpenIdentityDir(c)
	if err != nil {
		return err
	}
	defer identity.Close()
	ag, err := agent.New(agent.Options{Config: c, Peers: uplink.NewPeers(identity), Gate: gate,
		Server: uplink.NewServer(identity, c.Server.URLs), Hypervisor: driver,
		Accelerator: func() string { return shownAccelerator(driver.Accelerator()) }, ProbeAgain: probeAgain,
		Ready: func() { notify(log, sdnotify.Ready) }, Log: log, Version: version.String(), Lookup: lookupJob,
		Comments: commentsOf(system, c.Batch)})
	if err != nil {
		return err
	}
	stop := reloadOnHangUp(path, named, ag, log)
	defer stop()
	defer context.AfterFunc(ctx, func() { notify(log, sdnotify.Stopping) })()
	client := api.NewClient(c.Socket)
	keepAlive(ctx, log, func(ctx context.Context) error { _, err := client.Alive(ctx); return err })
	return runLinked(ctx, c, ag, log)
}

// runLinked runs the agent and its link to the server. The link ends with the agent, and its errors end nothing: the
// agent works alone.
func runLinked(ctx context.Context, c config.Agent, ag *agent.Agent, log *slog.Logger) error {
	linked, end := context.WithCancel(ctx)
	var link sync.WaitGroup
	link.Go(func() {
		if err := keepLink(linked, c, ag, log); err != nil {
			log.Error("no link to the server", "reason", err)
		}
	})
	defer link.Wait()
	defer end()
	return ag.Run(ctx)
}

// reloadOnHangUp reads the configuration again at HUP. A broken one is refused whole, and the old one stays.
func reloadOnHangUp(path string, named bool, ag *agent.Agent, log *slog.Logger) (stop func()) {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangUps:
				notify(log, sdnotify.Reloading())
				if c, err := app.ReadConfig(path, named); err != nil {
					log.Error("configuration not reloaded", "error", err)
				} else {
					ag.Reload(c)
				}
				notify(log, sdnotify.Ready)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(hangUps); close(done) }
}
