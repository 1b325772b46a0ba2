// Command grid sends jobs through a grid's computing element, ARC CE, into virtual machines: with a VOMS proxy and with
// a token. It shows that exit status and output come back, that the virtual organisation's queue gives the image, and
// whom the batch system charges. It needs root. JSON on the last line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/gridlab"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
)

func main() {
	limit := flag.Duration("timeout", 12*time.Minute, "of all together")
	built := flag.String("built", "", "be the second of three processes, the host, with what is built in a directory")
	site := flag.String("site", "", "be the third one, the site that the host is in, with a directory for uploads")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	var err error
	switch {
	case *site != "":
		err = runSite(ctx, *site)
	case *built != "":
		err = run(ctx, *built)
	default:
		err = outside(ctx, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grid:", err)
		os.Exit(1)
	}
}

// figures are the last line.
type figures struct {
	Proxy   float64 `json:"proxy_s"` // from submission to the end as the computing element tells it
	Token   float64 `json:"token_s"`
	Pilot   float64 `json:"pilot_s"`
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Machine bool    `json:"in_vm"` // both ran on another kernel than this host's
}

// script prints who and where it is, on which kernel, and ends with a status of its own.
const script = `#!/bin/sh
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo "user $(id -un)"
echo "args $1 $2"
echo "complaint" >&2
exit %d
`

const noImage = "APPS/VM/NONE"

func job(code int, runtime string) gridlab.Job {
	return gridlab.Job{Queue: "main", Runtime: runtime, Script: fmt.Sprintf(script, code), Args: []string{"a b", "c"}}
}

// sessions is where the guide has jobs' session directories.
const sessions = "/var/spool/arc/sessiondir"

func run(ctx context.Context, built string) (err error) {
	if err := ownFiles(); err != nil {
		return err
	}
	guide, err := readGuide()
	if err != nil {
		return err
	}
	agent, err := guide.file("/etc/grange/agent.toml")
	if err != nil {
		return err
	}
	queues, err := guide.file("/etc/arc.conf")
	if err != nil {
		return err
	}
	if err := errors.Join(guide.write("/etc/grange/grid.leases"), os.MkdirAll(sessions, 0o755)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "grid")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	site, err := connect(ctx, dir)
	if site != nil {
		defer func() { site.Process.Kill(); site.Wait() }()
	}
	if err != nil {
		return err
	}
	slurm, err := slurmlab.Start(ctx, slurmlab.Options{Agent: agent, Extra: "PartitionName=" + queue + " Nodes=ALL",
		Image: filepath.Join(built, builtImage), Programs: filepath.Join(built, builtPrograms)})
	if err != nil {
		return err
	}
	defer slurm.Close()
	grid, err := gridlab.Start(ctx, gridlab.Options{Dir: slurm.Home(), Sessions: sessions, SlurmConf: slurm.Conf(),
		User: slurmlab.User, Queues: map[string]string{"main": "--vm=micro"},
		Runtime: map[string]string{noImage: "--vm=none-such"}, Extra: queues})
	if err != nil {
		return err
	}
	defer grid.Close()
	fmt.Println("computing element at", grid.URL)

	var f figures
	proxy, err := grid.Proxy(ctx, "/atlas/Role=production/Capability=NULL", "/atlas/Role=NULL/Capability=NULL")
	if err != nil {
		return err
	}
	began := time.Now()
	byProxy, err := grid.RunProxy(ctx, proxy, job(3, ""))
	f.Proxy = time.Since(began).Seconds()
	f.count("VOMS proxy", byProxy, err, "3")

	token, err := grid.Token()
	if err != nil {
		return err
	}
	began = time.Now()
	byToken, err := grid.RunToken(ctx, token, job(4, ""))
	f.Token = time.Since(began).Seconds()
	f.count("token", byToken, err, "4")

	if _, err := grid.RunToken(ctx, token+"x", job(0, "")); err == nil {
		f.fails("a forged token was taken")
	} else {
		f.passes("a forged token is refused")
	}
	// Which image a runtime environment names comes as far as Slurm's own check: this one is refused before it is
	// queued.
	if o, err := grid.RunToken(ctx, token, job(0, noImage)); o.State == "FAILED" && o.Stdout == "" &&
		strings.Contains(grid.SubmitLog(o.ID), "none-such") {
		f.passes("the image of a runtime environment reaches sbatch, and an unknown one is refused there")
	} else {
		f.fails("an unknown image by a runtime environment: %+v, %v\n%s", o, err, grid.SubmitLog(o.ID))
	}
	f.Machine = inMachine(byProxy) && inMachine(byToken)
	if err := f.pilots(ctx, pilots{slurm, slurm.Lab(), grid, proxy, dir}); err != nil {
		return err
	}
	if left := slurm.Lab().Leaks(ctx); len(left) > 0 {
		f.fails("left behind: %s", strings.Join(left, "; "))
	}
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if f.Failed > 0 {
		fmt.Println(slurm.Log("slurmd"), slurm.Lab().AgentLog())
	}
	fmt.Println(string(line))
	if f.Failed > 0 || !f.Machine {
		return errors.New("the grid's jobs did not do what they should")
	}
	return nil
}

// count judges one job.
func (f *figures) count(what string, o gridlab.Outcome, err error, code string) {
	want := "user " + slurmlab.User + "\nargs a b c\n"
	if err == nil && o.Code == code && strings.HasSuffix(o.Stdout, want) && strings.Contains(o.Stderr, "complaint\n") &&
		inMachine(o) {
		f.passes("%s: exit status %s, output and errors are back, in a virtual machine", what, code)
		return
	}
	f.fails("%s: %+v, %v", what, o, err)
}

func (f *figures) passes(format string, args ...any) {
	f.Passed++
	fmt.Printf("OK     "+format+"\n", args...)
}

func (f *figures) fails(format string, args ...any) {
	f.Failed++
	fmt.Printf("WRONG  "+format+"\n", args...)
}

// holds judges what has to be true; detail is for where it is not.
func (f *figures) holds(is bool, what, detail string) {
	if is {
		f.passes("%s", what)
	} else {
		f.fails("not so: %s: %s", what, detail)
	}
}

// inMachine reports whether the job saw another kernel than this one.
func inMachine(o gridlab.Outcome) bool {
	here, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	seen, ok := strings.CutPrefix(strings.SplitN(o.Stdout, "\n", 2)[0], "boot ")
	return err == nil && ok && seen != "" && seen != strings.TrimSpace(string(here))
}
