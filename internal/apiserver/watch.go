package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// Watching asks for changes instead of a list.
type Watching struct {
	Watch bool  `query:"watch" doc:"tell changes as server-sent events instead: first what there is, then each change; ?watch alone will do"`
	Last  int64 `header:"Last-Event-ID" minimum:"0" doc:"with watch: go on behind this revision, and do not tell first what there is. 410: the feed does not reach back so far"`
}

// feed is one watch.
type feed struct {
	a     *API
	ctx   context.Context
	who   farm.Identity
	after int64
	// the next page of what is told before all else, none at its end; nil: there is nothing
	first  func() ([]fleet.Change, error)
	filter server.WatchFilter
	chosen func(server.Watched) bool // of those of the filter; nil: all
	fresh  bool                      // after was read just now
	leave  func()                    // ends its share; open sets it
}

// openTime is how long a watch that goes on waits for a first change before its answer begins.
const openTime = 200 * time.Millisecond

// open begins to watch: the first wait reports whether the feed reaches back, which must be known before the answer
// begins.
func (f *feed) open() (changes []server.Watched, err error) {
	if f.leave, err = f.a.shares.watch(f.who); err != nil || f.fresh {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, openTime)
	defer cancel()
	if changes, err = f.wait(ctx); err != nil {
		f.leave()
	}
	return changes, err
}

// wait returns what changed, and nothing when ctx ended first.
func (f *feed) wait(ctx context.Context) ([]server.Watched, error) {
	changes, upTo, err := f.a.server.Watch(ctx, f.who, f.filter, f.after)
	f.after = max(f.after, upTo)
	if err != nil && ctx.Err() != nil && f.ctx.Err() == nil {
		return nil, nil
	}
	return changes, err
}

// run sends changes until the caller or the server goes away.
func (f *feed) run(c huma.Context, changes []server.Watched) {
	defer f.leave()
	ctx, cancel := f.a.patient(f.ctx)
	defer cancel()
	ctx, stop := whileKnown(ctx, f.a.authn, f.a.keepAlive)
	defer stop()
	f.ctx = ctx
	out := newEvents(c)
	out.comment("watching")
	if !f.tellFirst(out) {
		return
	}
	for out.err == nil {
		f.tell(out, changes)
		out.flush()
		one, cancel := context.WithTimeout(ctx, f.a.keepAlive)
		var err error
		changes, err = f.wait(one)
		cancel()
		if err != nil || ctx.Err() != nil {
			return // whoever reads comes again, with the last ID
		}
		if len(changes) == 0 {
			out.comment("alive")
		}
	}
}

// tellFirst writes what there is, page by page, and reports whether all of it could be read. The last one carries the
// ID: who has not all of them begins anew.
func (f *feed) tellFirst(out *events) bool {
	if f.first == nil {
		return true
	}
	var page []fleet.Change
	for out.err == nil {
		next, err := f.first()
		if err != nil {
			return false
		}
		for i, change := range page {
			out.event(change, len(next) == 0 && i == len(page)-1)
		}
		if page = next; len(page) == 0 {
			return true
		}
	}
	return false
}

// tell writes those that were asked for. The last of a revision carries the ID: who comes again after half of them is
// told all of them.
func (f *feed) tell(out *events, changes []server.Watched) {
	changes = slices.DeleteFunc(changes, func(w server.Watched) bool { return f.chosen != nil && !f.chosen(w) })
	for i, w := range changes {
		whole := i == len(changes)-1 || changes[i+1].Revision != w.Revision
		out.event(changeView(w), whole)
	}
}

func changeView(w server.Watched) fleet.Change {
	c := fleet.Change{Revision: w.Revision, Kind: w.Kind, ID: w.ID, Deleted: w.Deleted}
	var object any
	switch {
	case w.VM != nil:
		object = vmView(*w.VM)
	case w.Host != nil:
		object = hostView(*w.Host)
	case w.Cell != nil:
		object = cellView(*w.Cell)
	default:
		return c
	}
	c.Object, _ = json.Marshal(object) // of our own types, which can all be written
	return c
}

// events writes server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func newEvents(c huma.Context) *events {
	_, w := unwrap(c)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy is not to wait for more
	return &events{w: w, control: http.NewResponseController(w)}
}

func (e *events) write(text []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(text)
	}
}

func (e *events) comment(text string) { e.write([]byte(": " + text + "\n\n")) }

// event writes a change; with an ID a reader that comes again goes on behind it.
func (e *events) event(c fleet.Change, whole bool) {
	text, err := json.Marshal(c)
	if err != nil {
		e.err = err
		return
	}
	var b []byte
	if whole {
		b = append(strconv.AppendInt(append(b, "id: "...), c.Revision, 10), '\n')
	}
	e.write(append(append(append(b, "data: "...), text...), "\n\n"...))
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.control.Flush()
	}
}

// listOrWatch answers with a list, or with its changes. start is the watch, with what there is.
func listOrWatch[T any](list func() (*one[fleet.Page[T]], error), start func() (*feed, error),
	watching bool) (*huma.StreamResponse, error) {
	if !watching {
		out, err := list()
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", "application/json")
			json.NewEncoder(c.BodyWriter()).Encode(out.Body)
		}}, nil
	}
	f, err := start()
	if err != nil {
		return nil, err
	}
	changes, err := f.open()
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) { f.run(c, changes) }}, nil
}

// listVMsRoute lists or watches VMs.
func (a *API) listVMsRoute() {
	r := route{method: "GET", path: "/v1/vms", id: "list-vms", tag: "VMs", summary: "List or watch virtual machines",
		about: "In the order of project and name. Those that the caller may see; an empty list may mean that there " +
			"are none of these."}
	handleEvents(a, r, reflect.TypeFor[fleet.Page[fleet.VM]](),
		func(ctx context.Context, who farm.Identity, in *listVMs) (*huma.StreamResponse, error) {
			return listOrWatch(func() (*one[fleet.Page[fleet.VM]], error) {
				if in.State != "" || in.Name != "" || len(in.Tag) > 0 { // which the store does not choose by
					leave, err := a.shares.walk(ctx, who)
					if err != nil {
						return nil, err
					}
					defer leave()
				}
				found, err := a.server.VMs.List(ctx, who, in.filter(in.Paging))
				if err != nil {
					return nil, err
				}
				out := fleet.Page[fleet.VM]{Items: []fleet.VM{}, Next: found.Next, Revision: found.Revision}
				for _, v := range found.Items {
					out.Items = append(out.Items, vmView(v))
				}
				return oneOf(out, 0), nil
			}, func() (*feed, error) { return a.watchVMs(ctx, who, in) }, in.Watch)
		})
}

// watchVMs begins to watch VMs of a filter. One that is deleted is told to all who could have seen it.
func (a *API) watchVMs(ctx context.Context, who farm.Identity, in *listVMs) (*feed, error) {
	f := &feed{a: a, ctx: ctx, who: who, after: in.Last, chosen: in.VMChoice.chooses,
		filter: server.WatchFilter{Kinds: []string{string(store.KindVM)}, Project: in.Project}}
	if in.Last > 0 {
		return f, nil
	}
	f.fresh = true
	var err error
	f.first, err = f.vms(in.filter(Paging{Limit: 1000}))
	return f, err
}

// vms reads the VMs of a filter page by page, the first one at once.
func (f *feed) vms(filter server.VMFilter) (next func() ([]fleet.Change, error), err error) {
	found, err := f.a.server.VMs.List(f.ctx, f.who, filter)
	if err != nil {
		return nil, err
	}
	f.after = found.Revision // what changes while the other pages are read is told again
	more := true
	return func() (page []fleet.Change, err error) {
		for more && err == nil && len(page) == 0 {
			for _, v := range found.Items {
				page = append(page, changeView(server.Watched{Revision: f.after, Kind: "vm", ID: v.ID, VM: &v}))
			}
			if more = found.Next != ""; more {
				filter.After = found.Next
				found, err = f.a.server.VMs.List(f.ctx, f.who, filter)
			}
		}
		return page, err
	}, nil
}
