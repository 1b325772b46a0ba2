package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// Agent is the part of an agent that makes workers; api.Client is one.
type Agent interface {
	StartWorker(context.Context, api.WorkerRequest) (api.Worker, error)
	StopWorker(ctx context.Context, name string) (api.Worker, error)
	FailWorker(ctx context.Context, name string) (api.Worker, error) // StopWorker, for its node did not come
	WorkerCame(ctx context.Context, name string) (api.Worker, error)
	Host(context.Context) (api.Host, error)
	Workers(context.Context) ([]api.Worker, error)
	FollowWorkers(ctx context.Context, each func(api.WorkerEvent) error) error
}

// Controller is slurmctld; Scontrol is one.
type Controller interface {
	Nodes(ctx context.Context, list string) ([]Node, error)
	SetNode(ctx context.Context, list, state, reason string) error
	DeleteNode(ctx context.Context, name string) error
	ShowJob(ctx context.Context, id string) (Job, error)
	StartNow(ctx context.Context, job string) error
	JobsOn(ctx context.Context, node string) ([]string, error)
}

// Host is one host that has workers.
type Host struct {
	Nodes []string // names; one that ends in "*" stands for all that start so
	Agent Agent
	Name  string // for people: its socket
}

func (h Host) has(node string) bool {
	return slices.ContainsFunc(h.Nodes, func(n string) bool {
		start, any := strings.CutSuffix(n, "*")
		return n == node || any && strings.HasPrefix(node, start)
	})
}

// Image is one rule that says of what image and shape a node is made. Empty conditions hold always; the first rule that
// holds wins.
type Image struct {
	Feature   string // that the job asks for
	Partition string
	Nodes     []string // as Host.Nodes
	Image     string   // "": as the agent's configuration says
	Shape     string
}

// Pool is the workers of one cluster.
type Pool struct {
	Slurm  Controller
	Hosts  []Host
	Images []Image
	Warm   int // CLOUD nodes to keep booted and free
	// WaitTimeout is how long a node may wait for room on its host, in whole seconds: the node's last VM may still be
	// ending.
	WaitTimeout time.Duration
	// BootTimeout is how long a VM may take to be a node: Slurm's ResumeTimeout. A VM that is older when Slurm asks for
	// its node is one that was forgotten.
	BootTimeout time.Duration
	// Restarts is how often a job is sent on at once when its node is lost; later it waits as long as Slurm lets it.
	Restarts int
	Log      *slog.Logger
}

func (p *Pool) host(node string) (Host, error) {
	for _, h := range p.Hosts {
		if h.has(node) {
			return h, nil
		}
	}
	return Host{}, &farm.Error{Kind: farm.NotFound, Code: CodeWorkerConfig, Message: "no host has node " + node,
		Hint: "name it in a [[host]] of worker.toml"}
}

// resumeFile is what Slurm tells ResumeProgram of jobs. Names of keys changed between releases; both are read.
type resumeFile struct {
	Jobs []resumeJob `json:"jobs"`
}

type resumeJob struct {
	ID          json.Number `json:"job_id"`
	Features    string      `json:"features"`
	Partition   string      `json:"partition"`
	Nodes       string      `json:"nodes"`
	NodesResume string      `json:"nodes_resume"`
	NodesAlloc  string      `json:"nodes_alloc"`
}

// readResumeFile returns the job of each node. A file that is not there, or is none, means that no job is known: Slurm
// also resumes nodes that nobody waits for.
func readResumeFile(text []byte) (map[string]resumeJob, error) {
	var f resumeFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	jobs := map[string]resumeJob{}
	for _, j := range f.Jobs {
		for _, list := range []string{j.NodesResume, j.NodesAlloc, j.Nodes} {
			hosts, err := Expand(list)
			if err != nil {
				return nil, err
			}
			for _, h := range hosts {
				if _, known := jobs[h]; !known {
					jobs[h] = j
				}
			}
		}
	}
	return jobs, nil
}

// Resume is ResumeProgram: it has a VM made for each node of the list. A node that cannot have one is given back at
// once, and its jobs go elsewhere. path is $SLURM_RESUME_FILE, or empty.
func (p *Pool) Resume(ctx context.Context, list, path string) error {
	nodes, err := Expand(list)
	if err != nil {
		return err
	}
	jobs := map[string]resumeJob{}
	if path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			jobs, err = readResumeFile(text)
		}
		if err != nil {
			p.Log.Warn("the resume file cannot be read", "path", path, "error", err)
		}
	}
	return p.each(nodes, func(node string) error {
		began := time.Now()
		j := jobs[node]
		w, err := p.start(ctx, node, j, false)
		if err == nil {
			p.Log.Info("node resumed", "node", node, "job", j.ID.String(), "vm", w.VM, "address", w.Address, "ms",
				time.Since(began).Milliseconds())
			return nil
		}
		if backsOff(err) {
			return errors.Join(err, p.hold(ctx, node, j.ID.String(), err))
		}
		p.Log.Error("no VM for the node: it is given back", "node", node, "job", j.ID.String(), "error", err)
		var waiting []string
		if j.ID != "" {
			waiting = []string{j.ID.String()}
		}
		return errors.Join(err, p.giveBack(ctx, node, "grange: no VM: "+firstLine(err), waiting))
	})
}

func (p *Pool) start(ctx context.Context, node string, j resumeJob, warm bool) (api.Worker, error) {
	h, err := p.host(node)
	if err != nil {
		return api.Worker{}, err
	}
	if j.ID != "" && j.Features == "" &&
		slices.ContainsFunc(p.Images, func(i Image) bool { return i.Feature != "" || i.Partition != "" }) {
		// releases before 23.02 tell the job's number alone
		if known, err := p.Slurm.ShowJob(ctx, j.ID.String()); err == nil {
			j.Features, j.Partition = known.Features, known.Partition
		}
	}
	image, shape := p.image(node, j)
	return h.Agent.StartWorker(ctx, api.WorkerRequest{Name: node, Image: image, Shape: shape, Warm: warm,
		WaitTimeout: int(p.WaitTimeout / time.Second), KeepYounger: max(1, int(p.BootTimeout/time.Second))})
}

// image finds the rule for a node and its job. Slurm writes features as "a&b|c*2": each name counts.
func (p *Pool) image(node string, j resumeJob) (image, shape string) {
	features := strings.FieldsFunc(j.Features, func(c rune) bool { return strings.ContainsRune("&|,*[]()", c) })
	for _, i := range p.Images {
		switch {
		case i.Feature != "" && !slices.Contains(features, i.Feature):
		case i.Partition != "" && i.Partition != j.Partition:
		case len(i.Nodes) > 0 && !(Host{Nodes: i.Nodes}).has(node):
		default:
			return i.Image, i.Shape
		}
	}
	return "", ""
}

// Suspend is SuspendProgram: it ends the VMs of the nodes.
func (p *Pool) Suspend(ctx context.Context, list string) error {
	nodes, err := Expand(list)
	if err != nil {
		return err
	}
	return p.each(nodes, func(node string) error {
		h, err := p.host(node)
		if err == nil {
			_, err = h.Agent.StopWorker(ctx, node)
		}
		if err != nil {
			p.Log.Error("suspend: `grange worker watch` ends the VM when its agent answers again", "node", node,
				"error", err)
			return err
		}
		p.Log.Info("node suspended", "node", node)
		return nil
	})
}

// Fail is ResumeFailProgram: Slurm has given these nodes up, so a VM that comes late must not come. Slurm has requeued
// the jobs itself.
func (p *Pool) Fail(ctx context.Context, list string) error {
	nodes, err := Expand(list)
	if err != nil {
		return err
	}
	return p.each(nodes, func(node string) error {
		p.Log.Warn("Slurm gave the node up", "node", node)
		h, err := p.host(node)
		if err == nil {
			_, err = h.Agent.FailWorker(ctx, node)
		}
		return errors.Join(err, p.Slurm.SetNode(ctx, node, "POWER_DOWN_FORCE",
			"grange: the node did not come up in time"))
	})
}

// Prolog is PrologSlurmctld: it returns when all nodes of the job have registered, or the timeout is over. Its end is
// what makes slurmctld launch the job: without it a job on a node that was powered up waits for the next round of a
// loop that comes every 30 s (PERIODIC_TIMEOUT in src/slurmctld/controller.c).
//
// A job that was taken off its nodes meanwhile is not held: slurmctld keeps it from starting elsewhere until its prolog
// has ended.
func (p *Pool) Prolog(ctx context.Context, job, list string, timeout time.Duration) error {
	limit := time.Now().Add(timeout)
	for pause := 100 * time.Millisecond; ; {
		nodes, err := p.Slurm.Nodes(ctx, list)
		if err == nil && !slices.ContainsFunc(nodes, func(n Node) bool { return !n.Registered() }) {
			p.cameAtLast(ctx, nodes)
			return nil
		}
		if err != nil {
			p.Log.Warn("prolog failed", "nodes", list, "error", err)
			pause = time.Second
		}
		if slices.ContainsFunc(nodes, func(n Node) bool { return n.Off() || n.Is("DOWN") }) {
			if j, err := p.Slurm.ShowJob(ctx, job); err == nil && j.State != "CONFIGURING" && j.State != "RUNNING" {
				return nil
			}
		}
		if time.Now().After(limit) {
			p.Log.Error("prolog: nodes did not register in time; Slurm's ResumeTimeout decides", "nodes", list)
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Epilog is EpilogSlurmctld: the nodes of a job are powered down behind it, so that each job gets a fresh VM.
func (p *Pool) Epilog(ctx context.Context, list string) error {
	return p.Slurm.SetNode(ctx, list, "POWER_DOWN_ASAP", "grange: one job a VM")
}

// giveBack powers a node down that has no VM, and sends its jobs on. Slurm would let a requeued job wait for two
// minutes.
func (p *Pool) giveBack(ctx context.Context, node, reason string, jobs []string) error {
	err := p.Slurm.SetNode(ctx, node, "POWER_DOWN_FORCE", reason)
	for _, j := range jobs {
		err = errors.Join(err, p.sendOn(ctx, j))
	}
	return err
}

// sendOn makes a requeued job start as soon as it can. Requeueing takes slurmctld a moment, in which it refuses.
func (p *Pool) sendOn(ctx context.Context, id string) error {
	const timeout = 10 * time.Second
	for limit := time.Now().Add(timeout); ; {
		j, err := p.Slurm.ShowJob(ctx, id)
		switch {
		case err != nil:
		case j.State == "PENDING" && j.Restarts > p.Restarts:
			p.Log.Warn("the job lost its node too often: it waits as Slurm wants it", "job", id, "restarts", j.Restarts)
			return nil
		case j.State == "PENDING":
			if err = p.Slurm.StartNow(ctx, id); err == nil {
				p.Log.Info("sent on", "job", id, "restarts", j.Restarts)
				return nil
			}
		case j.State != "RUNNING" && j.State != "CONFIGURING" && j.State != "COMPLETING" && j.State != "SUSPENDED" &&
			j.State != "STOPPED":
			return nil // it has ended: one that must not be requeued
		}
		if time.Now().After(limit) {
			return err
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// each runs do for all nodes, some at once, and joins what goes wrong: one bad node does not hold the others.
func (p *Pool) each(nodes []string, do func(node string) error) error {
	const atOnce = 16
	errs := make([]error, len(nodes))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, n := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(n)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// firstLine is what fits into a node's reason.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const most = 120
	return strings.Map(func(c rune) rune {
		if c < 32 || c > 126 || c == 34 || c == 39 {
			return 95
		}
		return c
	}, line[:min(len(line), most)])
}

// Remove takes a node out of the cluster and ends its VM. Jobs on it go elsewhere; a dynamic node is deleted.
func (p *Pool) Remove(ctx context.Context, node string) error {
	h, err := p.host(node)
	if err != nil {
		return err
	}
	var jobs []string
	nodes, err := p.Slurm.Nodes(ctx, node)
	known := err == nil && len(nodes) == 1
	if known {
		if jobs, err = p.Slurm.JobsOn(ctx, node); err != nil {
			return err
		}
		if err := p.Slurm.SetNode(ctx, node, "DOWN", "grange: removed"); err != nil {
			return err
		}
	}
	if _, err := h.Agent.StopWorker(ctx, node); err != nil {
		return err
	}
	switch {
	case !known:
		return nil
	case nodes[0].Is("CLOUD"):
		return p.giveBack(ctx, node, "grange: removed", jobs)
	}
	for _, j := range jobs {
		if err := p.sendOn(ctx, j); err != nil {
			p.Log.Warn("send on", "job", j, "error", err)
		}
	}
	return p.forgetNode(ctx, node)
}
