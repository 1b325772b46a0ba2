package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/batch/gridlab"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
)

//go:embed pilot.sh
var pilotScript string

// queue is that of the guide's for pilots.
const queue = "atlas"

// pilots sends pilots to the host that the guide configures.
func (f *figures) pilots(ctx context.Context, c *cluster) (err error) {
	repositories, err := serveTree(ctx, c.dir)
	defer func() { err = errors.Join(err, repositories.end()) }()
	if err != nil {
		return err
	}
	before, err := mounted(toolsRepository)
	if err != nil {
		return err
	}
	f.holds(!before, "no repository is mounted before the pilot's job", repositories.words())
	began := time.Now()
	f.pilot(ctx, c, node{"wn-0701", "10.1.0.201/24 2001:db8::701/64", "4 6", "2001:db8::701"})
	f.Pilot = time.Since(began).Seconds()
	f.pilot(ctx, c, node{"wn-0702", "2001:db8::702/64", "6", "2001:db8::702"})
	f.hung(ctx, c, repositories)
	if ctx.Err() == nil {
		f.left(ctx, c)
	}
	return ctx.Err()
}

// hung has a job wait for an automounter that does not answer: its host's agent does not, and the job can be ended.
func (f *figures) hung(ctx context.Context, c *cluster, r *repositories) {
	r.automounter.Process.Signal(syscall.SIGSTOP)
	defer r.automounter.Process.Signal(syscall.SIGCONT)
	ended := make(chan string, 1)
	go func() {
		o, err := c.grid.RunProxy(ctx, c.proxy, gridlab.Job{Queue: queue,
			Script: "#!/bin/sh\nls /cvmfs/slow.example.org\necho went on\n"})
		ended <- fmt.Sprintf("%+v, %v", o, err)
	}()
	for !waitsForMount() {
		select {
		case said := <-ended:
			f.fails("a job did not wait for the automounter: %s", said)
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
	vms, err := c.host.Client.VMs(ctx)
	f.holds(err == nil && len(vms) == 1, "the agent answers while a job waits for the automounter",
		fmt.Sprint(vms, err))
	_, err = c.slurm.Slurm(ctx, "root", "scancel", "--user="+slurmlab.User)
	said := <-ended
	f.holds(err == nil && !strings.Contains(said, "went on"), "such a job can be cancelled", fmt.Sprint(err, said))
	left := c.host.Leaks(ctx)
	f.holds(len(left) == 0, "nothing is left of it while the automounter hangs", strings.Join(left, "; "))
}

// waitsForMount reports whether a thread of a grange on this host waits for an automounter.
func waitsForMount() bool {
	processes, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, comm := range processes {
		if name, err := os.ReadFile(comm); err != nil || string(name) != "grange\n" {
			continue
		}
		threads, _ := filepath.Glob(filepath.Join(filepath.Dir(comm), "task/*/stack"))
		for _, stack := range threads {
			if where, err := os.ReadFile(stack); err == nil && strings.Contains(string(where), "autofs_wait") {
				return true
			}
		}
	}
	return false
}

// node is the lease that a pilot's VM has by the guide.
type node struct{ name, addresses, families, uploads string }

// pilot runs one, and judges what it saw.
func (f *figures) pilot(ctx context.Context, c *cluster, n node) {
	o, err := c.grid.RunProxy(ctx, c.proxy, gridlab.Job{Queue: queue, Runtime: gridlab.ProxyRuntime,
		Script: pilotScript, Args: []string{n.families}})
	all := fmt.Sprintf("%+v, %v", o, err)
	f.Machine = f.Machine && inMachine(o)
	f.holds(err == nil && o.Code == "7" && inMachine(o), "a pilot on "+n.name+" ends with its own status, in a VM", all)
	said := report(o.Stdout)
	f.holds(said["host"] == n.name+".example.org", "it has the host name of its lease", all)
	f.holds(said["addresses"] == n.addresses, "it has the addresses of its lease, and no others: "+n.addresses, all)
	memory, _ := strconv.Atoi(first(said["memory"]))
	f.holds(said["cpus"] == "1" && memory > 500 && memory <= 1000, "it has the CPU and the memory of its job", all)
	kind, size, _ := strings.Cut(said["scratch"], " ")
	scratch, _ := strconv.Atoi(first(size))
	f.holds(kind == "ext4" && scratch > 3500 && scratch <= 4096, "/tmp is a disk of 4 GiB", all)
	f.holds(!strings.Contains(said["found"], "left") && !strings.Contains(said["found"], "pilot"),
		"there is nothing of an earlier pilot on it", all)
	f.holds(said["tools"] == "curl openssl", "a repository is mounted when the pilot uses it", all)
	f.holds(strings.Contains(said["none"], "No such file"), "one that there is not is not found", all)
	f.holds(strings.Contains(said["written"], "Read-only file system") &&
		strings.Contains(said["trusted"], "Read-only file system"), "repositories and authorities are read-only", all)
	f.holds(strings.HasPrefix(said["proxy"], "0 ") && strings.HasSuffix(said["proxy"], "OK"),
		"openssl verifies the chain of the pilot's proxy", all)
	for family := range strings.FieldsSeq(n.families) {
		f.holds(strings.Contains(o.Stdout, "fetched by IPv"+family+"\n"), "it fetches a payload by IPv"+family, all)
	}
	f.holds(!strings.Contains(o.Stdout, "reached a neighbour"), "it does not reach a neighbour on its network", all)
	text, from, err := uploaded(c.dir, n.name)
	want := "release 24.0.9 on " + n.name + ".example.org\n"
	f.holds(err == nil && text == want && from.String() == n.uploads && strings.Contains(o.Stdout, want+"uploaded\n"),
		"the payload used another repository, and its output was sent from "+n.uploads,
		fmt.Sprint(text, from, err, all))
}

// report is what a pilot printed of its node: a word, and what it found.
func report(stdout string) map[string]string {
	said := map[string]string{}
	for line := range strings.Lines(stdout) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[word] = rest
	}
	return said
}

func first(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// left judges what pilots leave on their host.
func (f *figures) left(ctx context.Context, c *cluster) {
	left := c.host.Leaks(ctx)
	f.holds(len(left) == 0, "no VM, disk or process of a pilot is left", strings.Join(left, "; "))
	rules, err := exec.CommandContext(ctx, "/usr/sbin/nft", "list", "ruleset").CombinedOutput()
	f.holds(err == nil && !strings.Contains(string(rules), "52:54:00:12:07"), "no filter of a lease is left",
		string(rules))
	out, err := c.host.Grange(ctx, "network", "list", "--local").CombinedOutput()
	fields := strings.Fields(string(out))
	f.holds(err == nil && len(fields) > 9 && fields[9] == "0", "no lease is taken", string(out))
}
