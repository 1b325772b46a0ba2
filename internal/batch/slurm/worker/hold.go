package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// An image whose VMs do not become nodes would be started for ever: Slurm powers the node up again for the next job.
// The agent counts, and refuses for a while (internal/breaker). A node that was refused is DOWN meanwhile, with the
// agent's words as the reason, so that its job goes elsewhere and people see why. The watch powers it down when the
// time is over: then one VM is tried.

// held begins the reason of a node that waits for a back-off to end, and marks it as ours.
const held = "grange: held: "

func (n Node) held() bool { return n.State == "DOWN" && strings.HasPrefix(n.Reason, held) }

// backsOff reports whether the agent refuses for an image, or all of its host, that keeps failing.
func backsOff(err error) bool {
	problem, own := new(api.Problem), new(farm.Error)
	return errors.As(err, &problem) && problem.Type == "grange:"+string(farm.CodeBackedOff) || errors.As(err, &own) &&
		own.Code == farm.CodeBackedOff
}

// hold takes a node out of use until its image may be tried again, and sends its job on.
func (p *Pool) hold(ctx context.Context, node, job string, why error) error {
	p.Log.Error("no VM for the node: it is held", "node", node, "job", job, "error", why)
	err := p.Slurm.SetNode(ctx, node, "DOWN", held+firstLine(why))
	if job != "" {
		err = errors.Join(err, p.sendOn(ctx, job))
	}
	return err
}

// holds reports whether a back-off is what the node's reason speaks of, and lasts.
func holds(b api.BackOff, reason string, now time.Time) bool {
	spoken := b.Kind == "host" || strings.Contains(reason, b.Kind+" "+b.Name+" ")
	return spoken && (b.Trial || now.Before(b.Until))
}

// release gives the nodes of one host back that were held, when nothing holds them any more.
func (w *watch) release(ctx context.Context, h Host, nodes []Node) error {
	var waiting []Node
	for _, n := range nodes {
		if h.has(n.Name) && n.held() {
			waiting = append(waiting, n)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	host, err := h.Agent.Host(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range waiting {
		lasts := false
		for _, b := range host.BackOffs {
			lasts = lasts || holds(b, n.Reason, time.Now())
		}
		if lasts {
			continue
		}
		w.Log.Info("the back-off is over: the node may be tried again", "node", n.Name)
		errs = append(errs, w.Slurm.SetNode(ctx, n.Name, "POWER_DOWN_FORCE", "grange: the back-off is over"))
	}
	return errors.Join(errs...)
}

// cameAtLast reports nodes that a job waited for to their agents. The job waits for this too, so an agent that is slow
// is not waited for: the watch tells it again.
func (p *Pool) cameAtLast(ctx context.Context, nodes []Node) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	err := p.each(names, func(node string) error {
		h, err := p.host(node)
		if err == nil {
			_, err = h.Agent.WorkerCame(ctx, node)
		}
		return err
	})
	if err != nil {
		p.Log.Warn("cannot report to an agent that its worker has registered", "error", err)
	}
}

// tellCame reports to an agent which workers are nodes of Slurm now: those have started.
func (w *watch) tellCame(ctx context.Context, h Host, nodes []Node, workers []api.Worker) error {
	var errs []error
	for _, v := range workers {
		for _, n := range nodes {
			if v.Unseen && n.Name == v.Name && h.has(n.Name) && n.Registered() {
				_, err := h.Agent.WorkerCame(ctx, v.Name)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
