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
	"github.com/grange-project/grange/e2e/lab"
)

func main() {
	limit := flag.Duration("timeout", 20*time.Minute, "of all together")
	only := flag.String("only", "", "of the cases: jobs or pilots")
	built := flag.String("built", "", "be the second of three processes, the host, with what is built in a directory")
	site := flag.String("site", "", "be the third one, the site that the host is in, with a directory for uploads")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limited, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	var err error
	switch {
	case *site != "":
		err = runSite(ctx, *site) // as long as the host
	case *built != "":
		err = run(limited, *built, *only)
	default:
		err = outside(limited, os.Args[1:])
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
	Machine bool    `json:"in_vm"` // all ran on another kernel than this host's
}

// sessions is where the guide has jobs' session directories.
const sessions = "/var/spool/arc/sessiondir"

func run(ctx context.Context, built, only string) (err error) {
	if err := ownFiles(); err != nil {
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
	c := &cluster{dir: dir}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.start(ctx, built); err != nil {
		return err
	}
	fmt.Println("computing element at", c.grid.URL)

	f := figures{Machine: true}
	if only != "pilots" {
		err = f.jobs(ctx, c)
	}
	if only != "jobs" && err == nil {
		err = f.pilots(ctx, c)
	}
	if err != nil {
		return err
	}
	return f.print(ctx, c)
}

// cluster is a Slurm with the host of the guide, and a computing element before it.
type cluster struct {
	slurm *slurmlab.Lab
	host  *lab.Lab
	grid  *gridlab.Lab
	proxy string
	dir   string // of uploads, and of the repositories
}

func (c *cluster) start(ctx context.Context, built string) error {
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
	c.slurm, err = slurmlab.Start(ctx, slurmlab.Options{Agent: agent, Extra: "PartitionName=" + queue + " Nodes=ALL",
		Image: filepath.Join(built, builtImage), Programs: filepath.Join(built, builtPrograms)})
	if err != nil {
		return err
	}
	c.host = c.slurm.Lab()
	c.grid, err = gridlab.Start(ctx, gridlab.Options{Dir: c.slurm.Home(), Sessions: sessions,
		SlurmConf: c.slurm.Conf(), User: slurmlab.User, Queues: map[string]string{"main": "--vm=micro"},
		Runtime: map[string]string{noImage: "--vm=none-such"}, Extra: queues})
	if err != nil {
		return err
	}
	c.proxy, err = c.grid.Proxy(ctx, "/atlas/Role=production/Capability=NULL", "/atlas/Role=NULL/Capability=NULL")
	return err
}

func (c *cluster) close() (err error) {
	if c.grid != nil {
		err = c.grid.Close()
	}
	if c.slurm != nil {
		err = errors.Join(err, c.slurm.Close())
	}
	return err
}

// print judges what is left, and prints the last line.
func (f *figures) print(ctx context.Context, c *cluster) error {
	if left := c.host.Leaks(ctx); len(left) > 0 {
		f.fails("left behind: %s", strings.Join(left, "; "))
	}
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if f.Failed > 0 {
		fmt.Println(c.slurm.Log("slurmd"), c.host.AgentLog())
	}
	fmt.Println(string(line))
	if f.Failed > 0 || !f.Machine {
		return errors.New("the grid's jobs did not do what they should")
	}
	return nil
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
