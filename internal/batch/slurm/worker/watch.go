package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
)

// Times of the watch.
const (
	lookEvery = 10 * time.Second // between two looks at all nodes and all VMs
	again     = time.Second      // before an agent that does not answer is asked again
)

// Watch keeps nodes and VMs in step until ctx ends. A VM that ends under its node is known at once, by its agent's
// word, and its jobs go on elsewhere. All else, as what ended while nobody watched, is found by looking: at the start,
// and every ten seconds. Two watches of one cluster do the same work twice, and no harm.
func (p *Pool) Watch(ctx context.Context) error {
	w := &watch{Pool: p, twice: map[string]bool{}, busy: map[string]bool{}, look: make(chan struct{}, 1)}
	var all sync.WaitGroup
	defer all.Wait()
	for _, h := range p.Hosts {
		all.Go(func() { w.follow(ctx, h, &all) })
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := w.reconcile(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("look at nodes and VMs", "error", err)
		}
		select {
		case <-tick.C:
		case <-w.look:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch is what a Watch remembers. All of it can be lost.
type watch struct {
	*Pool
	look chan struct{} // asks for a look now

	mu    sync.Mutex
	twice map[string]bool // what the last look found wrong: it is acted upon when the next one finds it, too
	busy  map[string]bool // nodes that are being recovered
}

// follow hears of VMs that end on one host.
func (w *watch) follow(ctx context.Context, h Host, all *sync.WaitGroup) {
	for ctx.Err() == nil {
		err := h.Agent.FollowWorkers(ctx, func(e api.WorkerEvent) error {
			if e.Worker == nil || e.Worker.State != api.WorkerEnded {
				return nil
			}
			// Not here: the agent cuts off who does not listen.
			all.Go(func() { w.ended(ctx, *e.Worker) })
			return nil
		})
		if ctx.Err() == nil {
			w.Log.Warn("agent does not answer", "host", h.Name, "error", err)
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// ended looks at the node of a VM that has ended: Slurm may have wanted that.
func (w *watch) ended(ctx context.Context, v api.Worker) {
	if w.Warm > 0 {
		defer w.lookSoon()
	}
	if v.Refused {
		return // by its agent, which told whoever asked for it
	}
	if v.Ordered && v.Conf == "" {
		// by Slurm; a node that it has with a new VM already must not be touched. What else was ordered, a look finds
		return
	}
	nodes, err := w.Slurm.Nodes(ctx, v.Name)
	if err != nil || len(nodes) != 1 {
		if v.Conf == "" {
			w.Log.Warn("a VM ended whose node Slurm does not tell of", "node", v.Name, "cause", firstLineOf(v.Cause),
				"error", err)
		}
		return
	}
	if v.Conf == "" && nodes[0].Off() {
		return
	}
	jobs, err := w.recover(ctx, nodes[0], v.Conf != "", firstLineOf(v.Cause))
	if err != nil {
		w.Log.Error("node not recovered", "node", v.Name, "error", err)
	}
	for _, id := range jobs {
		w.nurse(ctx, id)
	}
}

// nurse looks after a job for a while that was sent on. slurmctld may have had a message on its way to the lost node,
// and when that times out it takes the job off its new node, and lets it wait for two minutes.
func (w *watch) nurse(ctx context.Context, id string) {
	const timeout = time.Minute // MessageTimeout is 10 s by default
	for limit := time.Now().Add(timeout); time.Now().Before(limit); {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		j, err := w.Slurm.ShowJob(ctx, id)
		switch {
		case err != nil || j.State == "COMPLETED":
			return
		case j.State == "PENDING" && j.Reason == "BeginTime" && j.Restarts <= w.Restarts:
			w.Log.Warn("the job was taken off its new node", "job", id, "restarts", j.Restarts)
			if err := w.sendOn(ctx, id); err != nil {
				w.Log.Error("send on", "job", id, "error", err)
			}
		}
	}
}

func (w *watch) lookSoon() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// recover takes a node out of Slurm's hands whose VM has gone, and sends its jobs on. DOWN first: it requeues the jobs
// at once, where POWER_DOWN_FORCE alone would wait for minutes for the dead node to say that it has killed them.
func (w *watch) recover(ctx context.Context, n Node, dynamic bool, cause string) (jobs []string, err error) {
	w.mu.Lock()
	mine := !w.busy[n.Name]
	w.busy[n.Name] = true
	w.mu.Unlock()
	if !mine {
		return nil, nil
	}
	defer func() {
		w.mu.Lock()
		delete(w.busy, n.Name)
		w.mu.Unlock()
	}()
	began := time.Now()
	if jobs, err = w.Slurm.JobsOn(ctx, n.Name); err != nil {
		w.Log.Warn("the node's jobs are not known", "node", n.Name, "error", err)
	}
	reason := "grange: the VM has gone: " + cause
	if err := w.Slurm.SetNode(ctx, n.Name, "DOWN", reason); err != nil {
		w.Log.Warn("set node down", "node", n.Name, "error", err)
	}
	if dynamic {
		err = nil
		for _, j := range jobs {
			err = errors.Join(err, w.sendOn(ctx, j))
		}
		err = errors.Join(err, w.forgetNode(ctx, n.Name))
	} else {
		err = w.giveBack(ctx, n.Name, reason, jobs)
	}
	w.Log.Warn("the node lost its VM", "node", n.Name, "state", n.State, "jobs", jobs, "cause", cause, "ms",
		time.Since(began).Milliseconds())
	return jobs, err
}

// forgetNode deletes a dynamic node. Slurm refuses as long as a job is ending on it.
func (p *Pool) forgetNode(ctx context.Context, name string) error {
	const timeout = 30 * time.Second
	for limit := time.Now().Add(timeout); ; {
		err := p.Slurm.DeleteNode(ctx, name)
		if err == nil {
			return nil
		}
		if nodes, look := p.Slurm.Nodes(ctx, name); look != nil || len(nodes) == 0 {
			return nil // Slurm knows it no more
		}
		if time.Now().After(limit) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reconcile compares what Slurm believes with what runs.
func (w *watch) reconcile(ctx context.Context) error {
	nodes, err := w.Slurm.Nodes(ctx, "")
	if err != nil {
		return err
	}
	found := map[string]bool{}
	var errs []error
	free := 0
	for _, h := range w.Hosts {
		workers, err := h.Agent.Workers(ctx)
		if err != nil {
			errs = append(errs, err) // what is not known is not lost
			for _, n := range nodes {
				if h.has(n.Name) {
					w.keep(found, "lost/"+n.Name)
				}
			}
			continue
		}
		errs = append(errs, w.compare(ctx, h, nodes, workers, found), w.tellCame(ctx, h, nodes, workers),
			w.release(ctx, h, nodes))
		free += w.free(h, nodes, workers)
	}
	w.mu.Lock()
	w.twice = found
	w.mu.Unlock()
	errs = append(errs, w.warmUp(ctx, nodes, free))
	return errors.Join(errs...)
}

// keep lets a finding wait that cannot be checked now.
func (w *watch) keep(found map[string]bool, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.twice[what] {
		found[what] = true
	}
}

// seenTwice notes a finding, and reports whether the last look had it.
func (w *watch) seenTwice(found map[string]bool, what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found[what] = true
	return w.twice[what]
}

// compare acts on nodes without a VM, and on VMs without a node.
func (w *watch) compare(ctx context.Context, h Host, nodes []Node, workers []api.Worker, found map[string]bool) error {
	var errs []error
	byName, known := map[string]api.Worker{}, map[string]Node{}
	for _, v := range workers {
		byName[v.Name] = v
	}
	for _, n := range nodes {
		known[n.Name] = n
		_, has := byName[n.Name]
		if !h.has(n.Name) || has || n.Off() || n.held() || n.Is("FUTURE") || !n.Is("CLOUD", "DYNAMIC_NORM") {
			continue
		}
		if w.seenTwice(found, "lost/"+n.Name) {
			_, err := w.recover(ctx, n, n.Is("DYNAMIC_NORM"), "nobody saw it end")
			errs = append(errs, err)
		}
	}
	for _, v := range workers {
		n, knows := known[v.Name]
		young := time.Since(v.Created) < w.BootTimeout
		gone := knows && n.Off() && !young || !knows && !young
		if gone && h.has(v.Name) && w.seenTwice(found, "forgotten/"+v.Name) {
			w.Log.Warn("a VM whose node Slurm does not have is ended", "node", v.Name, "vm", v.VM)
			_, err := h.Agent.StopWorker(ctx, v.Name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// free counts nodes that are up, or will be soon, and have no job.
func (w *watch) free(h Host, nodes []Node, workers []api.Worker) int {
	free, booting := 0, map[string]bool{}
	for _, v := range workers {
		booting[v.Name] = v.Warm && v.Conf == "" && time.Since(v.Created) < w.BootTimeout
	}
	for _, n := range nodes {
		if h.has(n.Name) && (n.State == "IDLE" && n.Registered() && !n.Is("DRAIN", "FUTURE") || n.Is("POWERED_DOWN") &&
			booting[n.Name]) {
			free++
		}
	}
	return free
}

// warmUp makes VMs for nodes that nobody asked for yet. A CLOUD node that registers unasked is idle and taken first.
func (w *watch) warmUp(ctx context.Context, nodes []Node, free int) error {
	var errs []error
	for _, n := range nodes {
		if free >= w.Warm {
			break
		}
		h, err := w.host(n.Name)
		if err != nil || !n.Is("CLOUD") || !n.Is("POWERED_DOWN") ||
			n.Is("POWERING_DOWN", "POWERING_UP", "DRAIN", "DOWN") {
			continue
		}
		workers, err := h.Agent.Workers(ctx)
		if err != nil || has(workers, n.Name) {
			continue
		}
		v, err := w.start(ctx, n.Name, resumeJob{}, true)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		free++
		w.Log.Info("warm node started", "node", n.Name, "vm", v.VM)
	}
	return errors.Join(errs...)
}

func has(workers []api.Worker, name string) bool {
	for _, v := range workers {
		if v.Name == name {
			return true
		}
	}
	return false
}

func firstLineOf(text string) string { return firstLine(errors.New(text)) }
