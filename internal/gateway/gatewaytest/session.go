package gatewaytest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Session is what VMs are made for: features that are tried in them, one after the other.
type Session struct {
	Caller   Identity
	ReadOnly bool
	VMs      int // that see the directory at the same time
	Features []string
	Instead  map[syscall.Errno][]syscall.Errno // of the gateway
	beside   bool                              // the directory is that of each feature; otherwise each has one below it
}

// Sessions are the contract in as few VMs as can be, without the features that a machine by itself is tried for.
func Sessions() []Session {
	var list []Session
	for _, f := range all() {
		if f.oneHost {
			continue
		}
		s := Session{Caller: someone, ReadOnly: f.readOnly, VMs: max(1, f.vms), beside: f.beside}
		if f.asRoot {
			s.Caller = root
		}
		found := false
		for i, have := range list {
			if have.Caller.UID == s.Caller.UID && have.ReadOnly == s.ReadOnly && have.VMs == s.VMs &&
				have.beside == s.beside {
				list[i].Features, found = append(have.Features, f.Name), true
			}
		}
		if !found {
			s.Features = []string{f.Name}
			list = append(list, s)
		}
	}
	return list
}

// VM is one that runs a Half.
type VM struct {
	Dir  string // the directory, as it is named there
	In   io.Writer
	Out  io.Reader
	Kill func() // ends it, and In and Out with it
}

// Run tries the features in VMs that see dir, and has each result reported: what of the feature failed.
func (s Session) Run(dir string, vms []VM, limit time.Duration, result func(feature string, failed []string)) {
	h := &hub{}
	for _, vm := range vms {
		h.to, h.from = append(h.to, json.NewEncoder(vm.In)), append(h.from, json.NewDecoder(vm.Out))
	}
	for _, name := range s.Features {
		c := call{Feature: name, Host: dir, Caller: s.Caller, ReadOnly: s.ReadOnly, Instead: s.Instead}
		if !s.beside && !s.ReadOnly {
			c.Host = filepath.Join(dir, name)
		}
		for _, vm := range vms {
			c.VMs = append(c.VMs, filepath.Join(vm.Dir, c.Host[len(dir):]))
		}
		result(name, c.tryIn(h, vms, limit))
	}
}

// tryIn tries one feature, and ends the VMs where that takes too long.
func (c call) tryIn(h *hub, vms []VM, limit time.Duration) (failed []string) {
	end := time.AfterFunc(limit, func() {
		for _, vm := range vms {
			vm.Kill()
		}
	})
	defer end.Stop()
	v := &vm{call: c, link: h, report: func(what string) { failed = append(failed, what) }}
	h.report = v.errorf
	if err := cmp.Or(h.gone, c.directory()); err != nil {
		return []string{err.Error()}
	}
	for i := range vms {
		mine := c
		mine.Number = i
		h.send(i, message{Try: &mine})
	}
	v.on(hostOf(c.Feature))
	for i := range vms {
		h.end(i)
	}
	if !end.Stop() {
		failed = append(failed, fmt.Sprintf("it takes longer than %v", limit))
	}
	return failed
}

// directory makes the caller's, unless it is there.
func (c call) directory() error {
	err := os.Mkdir(c.Host, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, os.Chown(c.Host, int(c.Caller.UID), int(c.Caller.GID)))
}

// hostOf is a feature's test.
func hostOf(name string) func(*vm) {
	return func(v *vm) {
		test := tests[name].test
		if test == nil {
			v.fatalf("there is no feature %q", name)
		}
		test(v)
	}
}

// message is a line between the host and a VM.
type message struct {
	Try     *call  `json:",omitempty"` // to a VM: it is to begin
	Report  string `json:",omitempty"` // from a VM: what failed
	Did     bool   `json:",omitempty"` // a step has ended
	Stopped bool   `json:",omitempty"` // and left nothing to try
	End     bool   `json:",omitempty"` // from a VM: the test has ended there
}

// hub is the host's link.
type hub struct {
	to     []*json.Encoder
	from   []*json.Decoder
	report func(format string, args ...any)
	gone   error // of a VM that is lost: no more is heard
}

func (h *hub) here(place int) bool { return place == host }

func (h *hub) send(to int, m message) {
	if err := h.to[to].Encode(m); err != nil {
		h.lost(to, err)
	}
}

func (h *hub) lost(number int, err error) {
	if h.gone == nil {
		h.gone = fmt.Errorf("VM %d is lost: %w", number, err)
		h.report("%v", h.gone)
	}
}

func (h *hub) did(stopped bool) { h.tell(host, stopped) }

func (h *hub) tell(by int, stopped bool) {
	for i := range h.to {
		if i != by {
			h.send(i, message{Did: true, Stopped: stopped})
		}
	}
}

func (h *hub) await(place int) bool {
	m := h.next(place)
	if !m.Did {
		h.report("VM %d has ended the test before the host", place)
		m.Stopped = true
	}
	h.tell(place, m.Stopped)
	return m.Stopped
}

// next is the next message that is no report.
func (h *hub) next(place int) message {
	for h.gone == nil {
		var m message
		if err := h.from[place].Decode(&m); err != nil {
			h.lost(place, err)
			break
		}
		if m.Report == "" {
			return m
		}
		h.report("%s", m.Report)
	}
	return message{Did: true, Stopped: true, End: true}
}

// end waits for the end of a test in a VM.
func (h *hub) end(place int) {
	for !h.next(place).End {
	}
}

// half is a VM's link.
type half struct {
	number int
	to     *json.Encoder
	from   *json.Decoder
}

func (h half) here(place int) bool { return place == h.number }

func (h half) send(m message) {
	if h.to.Encode(m) != nil {
		os.Exit(1) // the host has gone
	}
}

func (h half) did(stopped bool) { h.send(message{Did: true, Stopped: stopped}) }

func (h half) await(int) bool {
	var m message
	if h.from.Decode(&m) != nil {
		os.Exit(1)
	}
	return m.Stopped
}

// Half does in a VM, as root there, what Run of the host has it do. It ends with in.
func Half(in io.Reader, out io.Writer) error {
	h := half{to: json.NewEncoder(out), from: json.NewDecoder(in)}
	for {
		var m message
		if err := h.from.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Try == nil {
			return errors.New("no feature is named")
		}
		h.number = m.Try.Number
		v := &vm{call: *m.Try, link: h}
		v.report = func(what string) { h.send(message{Report: what}) }
		if v.ReadOnly { // for root of a hostile VM can do as much
			unix.Mount("", v.VMs[h.number], "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "")
		}
		v.on(hostOf(v.Feature))
		h.send(message{End: true})
	}
}
