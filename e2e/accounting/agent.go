package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"syscall"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/uplink"
)

// ofFile is what an agent wants: the test's file says it, and not the server, which knows no machines of this kind.
type ofFile struct{ *cloud.Host }

func (ofFile) Want(fleet.WantedList) {}

// hostName is the agent's host in the fleet, and its node in Slurm.
const hostName = "node-1"

// runAgent is an agent on the driver of this test, with a link to the server.
func runAgent(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := config.ParseAgent(fmt.Appendf(nil, "slurm_nodes = []\nstate_dir = %q\nrun_dir = %q\nsocket = %q\n"+
		"default_image = \"micro\"\nreserved_cpus = \"\"\nstop_timeout = \"300ms\"\nguest_file = \"/bin/true\"\n"+
		"[default_shape]\ncpus = 1\nmemory = \"64M\"\n", filepath.Join(dir, "s"), filepath.Join(dir, "r"),
		filepath.Join(dir, "agent.sock")), "test")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(dir, "identity"))
	if err != nil {
		return err
	}
	defer root.Close()
	ag, err := agent.New(agent.Options{Config: c, Hypervisor: driver{dir: filepath.Join(dir, "m")}, Log: log,
		Version: "test"})
	if err != nil {
		return err
	}
	go link(ctx, dir, root, ag, log)
	go func() {
		<-ag.Cloud.Recovered()
		os.WriteFile(filepath.Join(dir, "ready"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	}()
	go wants(ctx, dir, ag)
	return ag.Run(ctx)
}

// link joins, where that was not done, and keeps the link.
func link(ctx context.Context, dir string, root *os.Root, ag *agent.Agent, log *slog.Logger) {
	select {
	case <-ag.Cloud.Recovered():
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		l, err := uplink.New(uplink.Options{Dir: root, Host: ofFile{ag.Cloud}, Log: log, Usage: ag.Usage})
		if err == nil {
			l.Run(ctx)
			return
		}
		token, _ := os.ReadFile(filepath.Join(dir, "token"))
		url, _ := os.ReadFile(filepath.Join(dir, "url"))
		if _, err := uplink.Join(ctx, uplink.JoinOptions{Dir: root, Server: string(url), Token: string(token),
			Name: hostName, MachineID: "accounting"}); err != nil {
			log.Warn("join", "error", err)
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// wants has the agent want what the test's file says.
func wants(ctx context.Context, dir string, ag *agent.Agent) {
	var last fleet.WantedList
	for ctx.Err() == nil {
		var list fleet.WantedList
		text, err := os.ReadFile(filepath.Join(dir, "wanted.json"))
		if err == nil && json.Unmarshal(text, &list) == nil && !reflect.DeepEqual(list, last) {
			ag.Cloud.Want(list)
			last = list
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startChild starts this program in another role, which ends with it.
func startChild(log string, args ...string) (*os.Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(args[0], args, &os.ProcAttr{Files: []*os.File{null, out, out},
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, Env: os.Environ()})
}
