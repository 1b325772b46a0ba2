package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/leases"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/names"
)

const (
	maxWaitTimeout = time.Minute
	followerRoom   = 4096
)

var nodeName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// mayWork reports who may have VMs that hold the cluster's key: root, and whom the configuration names.
func (a workerDesk) mayWork(c Caller) error {
	if c.admin() {
		return nil
	}
	u, err := a.names.User(a.ctx, c.UID)
	switch {
	case err == nil && slices.Contains(a.config().Worker.Users, u.Name):
		return nil
	case err != nil && !errors.Is(err, names.ErrUnknown):
		return err
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
		Message: "only root and the users of [worker] may have workers of this host",
		Hint:    "name Slurm's SlurmUser in the agent's configuration: [worker] users"}
}

// checkWorker refuses what makes no sense, and finds the image: by digest, so that a name cannot come to mean another
// one. named is what people call it.
func (a workerDesk) checkWorker(r *api.WorkerRequest) (named string, err error) {
	c := a.config().Worker
	switch {
	case c.Controller == "":
		return "", &farm.Error{Kind: farm.Conflict, Code: CodeNoWorkers,
			Message: "this host is not configured for workers",
			Hint:    "fill [worker] of the agent's configuration; docs/guide/slurm-elastic.md shows how"}
	case !nodeName.MatchString(r.Name):
		return "", badRequest("%q cannot name a node: letters, digits and dashes, at most 63", r.Name)
	case strings.ContainsFunc(r.Conf, func(c rune) bool {
		return c < ' ' || c > '~' ||
			strings.ContainsRune(`"'\`, c)
	}):
		return "", badRequest("node configuration %q", r.Conf)
	case r.WaitTimeout < 0 || r.KeepYounger < 0:
		return "", badRequest("a negative time")
	}
	if r.Image == "" {
		r.Image = c.Image
	}
	if r.Image == "" {
		return "", badRequest("no image, and no [worker] image in the agent's configuration")
	}
	if r.Shape == "" {
		r.Shape = c.Shape
	}
	image, err := a.images.Get(r.Image)
	if err != nil {
		return "", err
	}
	if err := image.CheckSystem("a worker"); err != nil {
		return "", err
	}
	if !image.Site {
		return "", &farm.Error{Kind: farm.Denied, Code: CodeNotSite,
			Message: fmt.Sprintf("image %q is not the site's: a worker holds the cluster's key", r.Image),
			Hint:    "build or import it with --site, if you trust all that is in it"}
	}
	r.Image = image.Digest
	return image.Name, nil
}

// postWorker makes a worker and answers when it has its room.
func (a routes) postWorker(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := a.workerDesk.mayWork(c); err != nil {
		return err
	}
	var request api.WorkerRequest
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	named, err := a.workerDesk.checkWorker(&request)
	if err != nil {
		return err
	}
	if old := a.workerDesk.worker(request.Name); old != nil {
		keep := time.Duration(request.KeepYounger) * time.Second
		if old.takesMore() && (keep == 0 || time.Since(old.recordNow().Created) < keep) {
			return answer(w, old.workerView())
		}
		a.log.Warn("an older worker of the name is ended first", "worker", request.Name, "vm", old.recordNow().Name)
		old.cancel(errStopped)
		select {
		case <-old.over:
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
	j, err := a.workerDesk.begin(&request, named, c)
	if err != nil {
		return err
	}
	a.log.Info("worker asked for", "worker", request.Name, "job", j.id, "address",
		j.vm.recordNow().Worker.Address.String(), "uid", c.UID)
	a.jobs.Go(j.run)
	a.jobs.Go(j.followWorker)
	timeout := min(time.Duration(request.WaitTimeout)*time.Second, maxWaitTimeout)
	if err := j.awaitRoom(r.Context(), timeout); err != nil {
		return err
	}
	return answer(w, j.vm.workerView())
}

// awaitRoom returns when the ledger has granted the worker's room, or has refused it.
func (j *job) awaitRoom(ctx context.Context, timeout time.Duration) error {
	limit := time.After(timeout)
	for {
		granted := j.vm.recordNow().Plan.VCPUs != nil // before a phase is told
		j.mu.Lock()
		changed := j.changed
		waiting := len(j.events) > 0 && j.events[len(j.events)-1].Event == api.EventWaiting
		j.mu.Unlock()
		if granted {
			return nil
		}
		if waiting && timeout == 0 {
			j.cancel(errGivenBack)
		}
		select {
		case <-changed:
			continue
		case <-limit:
			if timeout > 0 {
				j.cancel(errGivenBack)
			}
		case <-j.over:
			return j.workerRefused()
		case <-ctx.Done():
			return context.Cause(ctx) // the worker goes on: whoever asks again finds it
		}
	}
}

// workerRefused is why a worker came to nothing before it had room.
func (j *job) workerRefused() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range slices.Backward(j.events) {
		switch {
		case e.Problem != nil && e.Problem.Type != "grange:"+string(farm.CodeInternal):
			return &farm.Error{Kind: farm.Kind(e.Problem.Title),
				Code: farm.Code(strings.TrimPrefix(e.Problem.Type, "grange:")), Message: e.Problem.Detail,
				Hint: e.Problem.Hint}
		case e.Event == api.EventWaiting:
			return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
				Message: "no room for the worker: " + e.Message,
				Hint:    "let slurm.conf have no more nodes than the hosts have room for"}
		}
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVMStopped,
		Message: "the worker was ended before it began", Hint: "ask again"}
}

// begin makes the job of a worker: one command in a VM, that belongs to no connection.
func (a workerDesk) begin(r *api.WorkerRequest, image string, c Caller) (*job, error) {
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	if a.worker(r.Name) != nil {
		return nil, &farm.Error{Kind: farm.Conflict, Code: CodeWorkerExists,
			Message: "worker " + r.Name + " is being requested by somebody else", Hint: "see `grange worker list`"}
	}
	requests := a.requests()
	conf := requests.config().Worker
	// Not the caller's share of the host: a worker is the site's, whoever starts it.
	owner := Caller{UID: c.UID, GID: c.GID, CPUs: a.machines.AllCPUs()}
	s, err := workerShape(requests, r)
	if err != nil {
		return nil, err
	}
	known, err := requests.namesOf(owner)
	if err != nil {
		return nil, err
	}
	may, err := requests.services(Caller{UID: c.UID, GID: c.GID, Groups: c.Groups, Owner: c.Owner})
	if err != nil {
		return nil, err
	}
	j := newJob(a.Agent, api.NewID(), owner)
	j.record = record{Version: recordVersion, Job: j.id, Created: time.Now(), Shape: s,
		User: known.Shown(), Name: vmName(j.id), Command: "worker " + r.Name, Caller: owner,
		Keep: true, Image: r.Image, Services: may,
		Worker: &workerRecord{Name: r.Name, Image: image, Conf: r.Conf, Warm: r.Warm}}
	j.request = workerJobRequest(j.record)
	enter := func() error {
		_, err := a.enter(newVM(j), j)
		return err
	}
	if conf.Site != "" {
		return j, a.leases.Give(conf.Site, r.Name, func(l leases.Lease) error {
			w := j.record.Worker
			j.record.Site, j.record.Lease, j.record.Shape.Network = conf.Site, &l, l.On
			w.Address, w.MAC, w.Isolated = l.Addresses[0], l.MAC, l.Isolated
			return enter()
		})
	}
	if err := a.giveAddress(j.record.Worker, conf); err != nil {
		return nil, err
	}
	return j, enter()
}

// giveAddress gives a worker an address of [worker].
func (a workerDesk) giveAddress(w *workerRecord, conf config.Worker) error {
	taken := a.takenOn(conf.Network)
	address, ok := a.workers.addresses.Lease(conf.Addresses, w.Name, taken)
	if !ok {
		return &farm.Error{Kind: farm.NoCapacity, Code: leases.CodeNoAddress,
			Message: fmt.Sprintf("all addresses of [worker] are leased (%d)", len(taken)),
			Hint:    "raise [worker] addresses"}
	}
	w.Address, w.MAC, w.Gateway, w.Isolated = address, farm.MAC(address.Addr()), conf.Gateway, conf.Isolate
	return nil
}

func workerShape(a requests, r *api.WorkerRequest) (farm.Shape, error) {
	s, err := a.shapeNamed(r.Shape)
	if err != nil {
		return s, err
	}
	if r.CPUs != 0 {
		s.CPUs = r.CPUs
	}
	if r.Memory != 0 {
		s.Memory = farm.Bytes(r.Memory)
	}
	s.Network = a.config().Worker.Network
	return s, errors.Join(s.Validate(), s.CheckBandwidth())
}

// workerJobRequest stands for the request that a job's caller would have sent. It follows from the record: a new agent
// has it again.
func workerJobRequest(r record) *api.JobRequest {
	return &api.JobRequest{ID: r.Job, Image: r.Image, Argv: []string{"slurmd"}, Dir: "/", Keep: true}
}

// takenOn are the addresses of all workers, also of those that are being ended, and of leases on the workers' network:
// they may be older than its addresses.
func (a workerDesk) takenOn(n farm.Network) map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	for _, v := range a.all() {
		r := v.recordNow()
		if w := r.Worker; w != nil {
			taken[w.Address.Addr()] = true
		}
		if l := r.Lease; l != nil && r.Shape.Network == n {
			taken[l.IPv4().Addr()] = true
		}
	}
	return taken
}

// worker finds a worker by its node's name, also one that is ending.
func (a workerDesk) worker(name string) *vm {
	for _, v := range a.all() {
		if w := v.recordNow().Worker; w != nil && w.Name == name {
			return v
		}
	}
	return nil
}

// followWorker is with a worker from its start, or its take-over, to its end, as `grange exec` is with a job.
func (j *job) followWorker() {
	name := j.vm.recordNow().Worker.Name
	j.vm.tellWorker("", false, false)
	cause, ordered, refused := "the VM was ended by order", true, false
	j.follow(j.agent.ctx, func(e api.JobEvent) error {
		switch e.Event {
		case api.EventRunning:
			j.vm.tellWorker("", false, false)
		case api.EventEnded:
			ordered = false
			cause = fmt.Sprintf("slurmd ended with status %d", e.Exit.Code)
			if m := j.vm.current(); m != nil {
				cause += m.LastWords()
			}
			j.agent.log.Warn("worker's daemon has ended", "worker", name, "cause", cause)
			j.agent.workerDesk.workerWent(j.vm, true, cause)
			j.cancel(errGivenBack)
		case api.EventFailed, api.EventLost:
			cause, ordered = e.Problem.Detail, e.Problem.Type == "grange:"+string(CodeVMStopped)
			refused = e.Problem.Type == "grange:"+string(farm.CodeBackedOff)
			if !ordered {
				j.agent.log.Warn("worker lost", "worker", name, "cause", cause)
			}
			j.agent.workerDesk.workerWent(j.vm, !ordered, cause)
			j.cancel(errGivenBack)
		}
		return nil
	})
	select {
	case <-j.over:
		j.agent.workerDesk.workerWent(j.vm, false, cause)
		j.vm.tellWorker(cause, ordered, refused)
	default: // the agent stops; the worker does not
	}
}

// tellWorker sends followers the worker's state; a cause means that it has ended.
func (v *vm) tellWorker(cause string, ordered, refused bool) {
	view := v.workerView()
	if cause != "" {
		view.State, view.Cause, view.Ordered, view.Refused = api.WorkerEnded, cause, ordered, refused
	}
	w := &v.agent.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.followers {
		select {
		case f.events <- view:
		default:
			f.cut()
		}
	}
}

func (v *vm) workerView() api.Worker {
	state, r := v.view(nil).State, v.recordNow()
	out := api.Worker{Name: r.Worker.Name, State: api.WorkerStarting, VM: r.Name, Image: r.Image, Digest: r.Digest,
		Address: r.Worker.Address.String(), MAC: r.Worker.MAC, Conf: r.Worker.Conf, Warm: r.Worker.Warm,
		CPUs: r.Shape.CPUs, Memory: uint64(r.Shape.Memory), Created: r.Created, Unseen: v.agent.workerDesk.unseen(v)}
	if state == "running" || state == "kept" || state == "suspended" || state == machine.StateUnresponsive {
		out.State = api.WorkerUp
	}
	return out
}

// getWorkers lists workers, and with follow=true goes on telling. Whoever may have workers sees all; others none where
// VMs are private, and nothing of their consoles, which the cause of an end quotes.
func (a routes) getWorkers(w http.ResponseWriter, r *http.Request, c Caller) error {
	denied, follow := a.workerDesk.mayWork(c), r.URL.Query().Get("follow") == "true"
	switch {
	case denied == nil || a.maySee(c, nobody):
	case follow:
		return denied
	default:
		return answer(w, []api.Worker{})
	}
	list := func() []api.Worker {
		found := []api.Worker{}
		for _, v := range a.all() {
			if v.recordNow().Worker != nil {
				found = append(found, v.workerView())
			}
		}
		slices.SortFunc(found, func(x, y api.Worker) int { return strings.Compare(x.Name, y.Name) })
		return found
	}
	if !follow {
		return answer(w, list())
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &workerFollower{events: make(chan api.Worker, followerRoom), cut: cancel}
	a.workers.mu.Lock() // nothing is told before the list, and nothing lost behind it
	if a.workers.followers == nil {
		a.workers.followers = map[*workerFollower]bool{}
	}
	a.workers.followers[f] = true
	a.workers.mu.Unlock()
	defer func() {
		a.workers.mu.Lock()
		delete(a.workers.followers, f)
		a.workers.mu.Unlock()
	}()
	send := lines[api.WorkerEvent](w)
	for _, found := range list() {
		if send(api.WorkerEvent{Worker: &found}) != nil {
			return nil
		}
	}
	if send(api.WorkerEvent{}) != nil {
		return nil
	}
	for {
		select {
		case v := <-f.events:
			if denied != nil {
				v.Cause = farm.Observed{Reason: v.Cause}.Brief()
			}
			if send(api.WorkerEvent{Worker: &v}) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// deleteWorker ends a worker and answers when its VM is gone. One that is not there is no error: Slurm may ask twice.
func (a routes) deleteWorker(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := a.workerDesk.mayWork(c); err != nil {
		return err
	}
	name := r.PathValue("name")
	v := a.workerDesk.worker(name)
	if v == nil {
		return answer(w, api.Worker{Name: name, State: api.WorkerEnded})
	}
	if r.URL.Query().Get("late") == "true" {
		a.workerDesk.workerLate(v)
	}
	v.cancel(errStopped)
	select {
	case <-v.over:
	case <-r.Context().Done():
	}
	view := v.workerView()
	view.State = api.WorkerEnded
	return answer(w, view)
}
