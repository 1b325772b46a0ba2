package images

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// How many hosts are at an order at a time where nothing is said, and how long it is kept after its end.
const (
	fetchAtOnce = 20
	dropAtOnce  = 5
	mostAtOnce  = 1000
	keepOrders  = 24 * time.Hour
	// orderAge is when hosts that did not come back are given up.
	orderAge = 24 * time.Hour

	mostOrders = 50  // of one user that hosts are at, and as many that have ended
	mostWhat   = 256 // bytes of an image's name, or of a pattern
	mostNames  = 1000
)

// Choice is which hosts do something with images.
type Choice struct {
	Cell   string
	Hosts  []string // names, patterns or IDs; none: all
	Labels map[string]string
	AtOnce int

	Once string // idempotency key; "": none
}

// check refuses choices that take long to look through: all writers wait meanwhile.
func (f Choice) check(what string) error {
	switch fault := farm.TagFault(f.Labels); {
	case len(what) > mostWhat:
		return badImage("an image's name of %d bytes; at most %d", len(what), mostWhat)
	case len(f.Hosts) > mostNames:
		return badImage("%d names of hosts; at most %d", len(f.Hosts), mostNames)
	case slices.ContainsFunc(f.Hosts, func(p string) bool { return len(p) > mostWhat }):
		return badImage("a host's name of more than %d bytes", mostWhat)
	case fault != "":
		return badImage("labels of hosts: %s", fault)
	}
	return nil
}

func (f Choice) chooses(h farm.Host) bool {
	for k, v := range f.Labels {
		if has, ok := h.Labels[k]; !ok || v != "" && has != v {
			return false
		}
	}
	named := len(f.Hosts) == 0 || slices.ContainsFunc(f.Hosts, func(p string) bool {
		ok, err := path.Match(p, h.Name)
		return p == h.ID || ok && err == nil
	})
	return named && (f.Cell == "" || f.Cell == h.Cell)
}

// Rollout is an order with what hosts have done of it.
type Rollout struct {
	farm.ImageOrder
	Tasks []HostTask // in the order of hosts
}

// HostTask is one host's.
type HostTask struct {
	farm.ImageTask
	Name string // of the host
}

// Order has hosts fetch the image that what means now, or remove all that the pattern what has ever meant. It returns
// at once; hosts do it some at a time.
func (c *Catalogue) Order(ctx context.Context, who farm.Identity, op farm.ImageOp, what string, f Choice) (r Rollout,
	err error) {
	if err := f.check(what); err != nil {
		return r, err
	}
	key := f.Once
	f.Once = ""
	var ids []string
	_, err = c.Actions.Change(ctx, who, policy.StageImage, func(call *action.Call) (err error) {
		call.Target = target(what)
		ids, _, err = call.Once(key, []any{op, what, f}, func() ([]string, error) {
			if err := makeRoom(call); err != nil {
				return nil, err
			}
			id := api.NewID()
			return []string{id}, c.order(call, id, op, what, f)
		})
		return err
	})
	if err != nil {
		return r, err
	}
	return c.Rollout(ctx, who, ids[0])
}

// makeRoom refuses one more order of a user for whom hosts are at many, and deletes those of the user that ended first
// where many are kept. Root's are not counted.
func makeRoom(call *action.Call) error {
	if call.Who.Root {
		return nil
	}
	rows := store.ImagesOf(call.Tx)
	all, err := rows.Orders()
	if err != nil {
		return err
	}
	var open int
	var ended []farm.ImageOrder
	for _, o := range all {
		switch {
		case o.By != call.Caller():
		case o.Ended.IsZero():
			open++
		default:
			ended = append(ended, o)
		}
	}
	if open >= mostOrders {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
			Message: fmt.Sprintf("hosts are at %d orders of yours, and you may have no more", open),
			Hint:    "wait until some of them have ended; one order may be for all hosts"}
	}
	slices.SortFunc(ended, func(a, b farm.ImageOrder) int { return a.Ended.Compare(b.Ended) })
	for len(ended) >= mostOrders {
		if err := rows.DeleteOrder(ended[0].ID); err != nil {
			return err
		}
		ended = ended[1:]
	}
	return nil
}

// Stage has all hosts of a cell fetch an image that jobs wait for, unless its digest is had.
func (c *Catalogue) Stage(ctx context.Context, epoch int64, cell, image, had string) (digest string, err error) {
	err = c.Store.View(ctx, func(t *store.Tx) error {
		i, _, err := find(store.ImagesOf(t), image)
		digest = i.Digest
		return err
	})
	if err != nil || digest == had {
		return digest, err
	}
	return digest, c.Actions.ByItself(ctx, epoch, policy.StageImage, func(call *action.Call) error {
		return c.order(call, api.NewID(), farm.ImageFetch, image, Choice{Cell: cell})
	})
}

// order enters an order with its tasks.
func (c *Catalogue) order(call *action.Call, id string, op farm.ImageOp, what string, f Choice) error {
	rows, task := store.ImagesOf(call.Tx), farm.ImageTask{Order: id, Op: op, State: farm.TaskWaiting}
	if err := subject(rows, what, &task); err != nil {
		return err
	}
	hosts, err := c.chosen(call, f)
	if err != nil {
		return err
	}
	atOnce := map[farm.ImageOp]int{farm.ImageFetch: fetchAtOnce, farm.ImageDrop: dropAtOnce}[op]
	if f.AtOnce != 0 {
		atOnce = min(max(f.AtOnce, 1), mostAtOnce)
	}
	for _, h := range hosts {
		task.Host = h.ID
		if err := rows.PutTask(task); err != nil {
			return err
		}
	}
	call.Target = target(what)
	if err := rows.PutOrder(farm.ImageOrder{ID: id, Op: op, What: what, AtOnce: atOnce, By: call.Caller(),
		Created: call.Now}); err != nil {
		return err
	}
	return call.Did(fmt.Sprintf("%s by %s, %d at a time", op, farm.Count(len(hosts), "host"), atOnce))
}

// subject enters which images a task is about.
func subject(rows store.Images, what string, task *farm.ImageTask) (err error) {
	if task.Op == farm.ImageDrop {
		task.Digests, err = matching(rows, what)
		return err
	}
	i, name, err := find(rows, what)
	switch {
	case err != nil:
		return err
	case i.Removed:
		return gone(what)
	}
	task.Name, task.Digests = name.Name, []string{i.Digest}
	return i.Refused(what)
}

// chosen are the hosts of a choice that the caller may see. The caller may have them do that, or none of it is done.
func (c *Catalogue) chosen(call *action.Call, f Choice) (hosts []farm.Host, err error) {
	for _, p := range f.Hosts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, badImage("invalid pattern %.80q of hosts", p)
		}
	}
	all, err := call.HostsBrief(f.Cell)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if !f.chooses(h) || !call.SeesHost(h) {
			continue
		}
		if err := call.May(action.HostTarget(h)); err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		if err := call.May(policy.Target{Cell: f.Cell}); err != nil {
			return nil, err
		}
		return nil, &farm.Error{Kind: farm.NotFound, Code: CodeNoTargets, Message: "no host is chosen by that",
			Hint: "`grange host list` shows hosts, cells and labels"}
	}
	return hosts, nil
}

// Rollout is one order, with the tasks of hosts that the caller may see.
func (c *Catalogue) Rollout(ctx context.Context, who farm.Identity, id string) (r Rollout, err error) {
	err = c.Actions.Look(ctx, who, policy.ReadHost, func(call *action.Call) error {
		r.ImageOrder, err = store.ImagesOf(call.Tx).Order(id)
		if action.Missing(err) {
			return &farm.Error{Kind: farm.NotFound, Code: CodeNoTargets, Message: "no order " + farm.Printable(id),
				Hint: "orders are kept for a day after their end"}
		}
		if err != nil {
			return err
		}
		tasks, err := store.ImagesOf(call.Tx).Tasks(id)
		if err != nil {
			return err
		}
		hosts, err := call.HostsBrief("")
		if err != nil {
			return err
		}
		of := map[string]farm.ImageTask{}
		for _, t := range tasks {
			of[t.Host] = t
		}
		r.Tasks = nil
		for _, h := range hosts {
			if t, ok := of[h.ID]; ok && call.SeesHost(h) {
				r.Tasks = append(r.Tasks, HostTask{t, h.Name})
			}
		}
		return nil
	})
	return r, err
}

// Pass looks how far hosts are with their orders, and has the next begin.
func (c *Catalogue) Pass(ctx context.Context, epoch int64) error {
	var orders []farm.ImageOrder
	err := c.Store.View(ctx, func(t *store.Tx) (err error) {
		orders, err = store.ImagesOf(t).OpenOrders()
		return err
	})
	for _, o := range orders {
		if err == nil {
			err = c.passOrder(ctx, epoch, o.ID)
		}
	}
	return err
}

func (c *Catalogue) passOrder(ctx context.Context, epoch int64, id string) error {
	return c.Actions.ByItself(ctx, epoch, policy.StageImage, func(call *action.Call) error {
		rows := store.ImagesOf(call.Tx)
		o, err := rows.Order(id)
		if err != nil {
			return err
		}
		tasks, err := rows.Tasks(id)
		if err != nil {
			return err
		}
		hosts, err := c.hostsAt(call, tasks)
		if err != nil {
			return err
		}
		changed, ended := next(o, tasks, hosts, call.Now)
		for _, t := range changed {
			if err := rows.PutTask(t); err != nil {
				return err
			}
		}
		if !ended {
			return nil
		}
		o.Ended = call.Now
		return rows.PutOrder(o)
	})
}

// Prune drops orders that ended long ago.
func (c *Catalogue) Prune(ctx context.Context, epoch int64) error {
	return c.Actions.ByItself(ctx, epoch, policy.StageImage, func(call *action.Call) error {
		orders, err := store.ImagesOf(call.Tx).Orders()
		for _, o := range orders {
			if err == nil && !o.Ended.IsZero() && call.Now.Sub(o.Ended) > keepOrders {
				err = store.ImagesOf(call.Tx).DeleteOrder(o.ID)
			}
		}
		return err
	})
}

// hostAt is what is known of a host that has a task.
type hostAt struct {
	known  bool
	silent bool
	old    bool // its agent knows no catalogue
	facts  farm.Facts
}

// hostsAt reads the hosts that are at a task, and of those that wait whether they are silent.
func (c *Catalogue) hostsAt(call *action.Call, tasks []farm.ImageTask) (map[string]hostAt, error) {
	all, err := call.HostsBrief("")
	if err != nil {
		return nil, err
	}
	state := map[string]farm.TaskState{}
	for _, t := range tasks {
		state[t.Host] = t.State
	}
	hosts := map[string]hostAt{}
	for _, h := range all {
		at := hostAt{known: true, silent: c.Silent != nil && c.Silent(h)}
		if state[h.ID] == farm.TaskActive {
			full, err := call.Tx.Host(h.ID)
			if err != nil {
				return nil, err
			}
			at.facts, at.old = full.Facts, full.Facts.Capability < catalogueCapability
		}
		hosts[h.ID] = at
	}
	return hosts, nil
}

// catalogueCapability is that of the first agents that have a copy of the catalogue.
const catalogueCapability = 3

// next decides what has become of the tasks of an order, and which begin. It is pure. Hosts that are silent hold nobody
// up: they do their part when they are back, within a day.
func next(o farm.ImageOrder, tasks []farm.ImageTask, hosts map[string]hostAt, now time.Time) (changed []farm.ImageTask,
	ended bool) {
	late := now.Sub(o.Created) > orderAge
	active, open := 0, 0
	after := make([]farm.ImageTask, len(tasks))
	for i, t := range tasks {
		after[i] = judge(t, hosts[t.Host], o.ID, late)
		if after[i].State == farm.TaskActive && !hosts[t.Host].silent {
			active++
		}
	}
	for i := range after {
		t := &after[i]
		if t.State == farm.TaskWaiting && active < o.AtOnce && !hosts[t.Host].silent {
			t.State, t.Began = farm.TaskActive, now
			active++
		}
		if !t.State.Over() {
			open++
		}
		if !same(*t, tasks[i]) {
			changed = append(changed, *t)
		}
	}
	return changed, open == 0
}

func same(a, b farm.ImageTask) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Done == b.Done && a.Total == b.Total
}

// judge is a task after what its host says.
func judge(t farm.ImageTask, h hostAt, order string, late bool) farm.ImageTask {
	fail := func(why string) farm.ImageTask {
		t.State, t.Reason = farm.TaskFailed, why
		return t
	}
	switch {
	case t.State.Over():
		return t
	case !h.known:
		return fail("it is no longer a host of the fleet")
	case late:
		return fail("it was not done within a day")
	case t.State == farm.TaskWaiting:
		return t
	case h.old:
		return fail("its agent is of a release without the catalogue: update it")
	}
	var left []string
	for _, digest := range t.Digests {
		if slices.Contains(h.facts.Images, digest) == (t.Op == farm.ImageDrop) {
			left = append(left, digest)
		}
	}
	if len(left) == 0 {
		t.State, t.Reason, t.Done = farm.TaskDone, "", t.Total
		return t
	}
	for _, u := range h.facts.ImageUse {
		switch {
		case u.Order == order:
			return fail(strings.TrimSpace(u.Reason))
		case u.Total > 0 && slices.Contains(left, u.Digest) && t.Op == farm.ImageFetch:
			t.Done, t.Total = u.Done, u.Total
		}
	}
	return t
}
