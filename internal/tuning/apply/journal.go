package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// stateDir holds one directory for each apply, and the lock.
const stateDir = "var/lib/grange/tuning"

// maxJournal bounds a journal: a plan has tens of steps, and the files that they touch are small.
const maxJournal = 64 << 20

// Phase is how far an apply has come.
type Phase string

// Phases. Applying, undoing and failed ones have to be undone before anything else is applied.
const (
	Planned  Phase = "planned"  // nothing was changed yet
	Applying Phase = "applying" // at work, or cut short
	Applied  Phase = "applied"
	Undoing  Phase = "undoing" // at work, or cut short
	Undone   Phase = "undone"
	Failed   Phase = "failed" // undone in part; try again
)

// open reports that an apply left the host between two states.
func (p Phase) open() bool { return p == Applying || p == Undoing || p == Failed }

// entry is one line of a journal. Each is on disk before what it announces begins.
type entry struct {
	Version int        `json:"version,omitempty"` // of the first line
	At      *time.Time `json:"at,omitempty"`
	Who     *Who       `json:"who,omitempty"`
	Plan    *Plan      `json:"plan,omitempty"`
	Phase   Phase      `json:"phase,omitempty"`
	Error   string     `json:"error,omitempty"` // why the phase changed

	Begin  *record `json:"begin,omitempty"`
	Done   *int    `json:"done,omitempty"`   // step that was made
	Undone *int    `json:"undone,omitempty"` // step that was taken back
}

// record is all that is needed to take a step back.
type record struct {
	Step    int
	Before  State
	Parents []string   `json:",omitempty"` // directories that were made for a file
	Files   []snapshot `json:",omitempty"` // what a simulated step may touch
	Modules []Module   `json:",omitempty"` // as they were, in load order
}

type snapshot struct {
	Path string
	File *File
}

// Run is one apply as its journal tells it.
type Run struct {
	ID    string
	At    time.Time
	Who   Who
	Phase Phase
	Error string // of the last change of phase
	Plan  Plan

	records []record // of steps that began, in their order
	done    map[int]bool
	undone  map[int]bool
}

// journal is a run that is being written.
type journal struct {
	run  *Run
	file *os.File
	size int64 // of what is whole
}

var runID = lazyregexp.New(`^[0-9]{8}T[0-9]{6}Z(-[0-9]{1,3})?$`)

// lock keeps two applies and undos apart. It ends with the process that holds it.
func lock(root *os.Root) (unlock func(), err error) {
	if err := makeStateDir(root); err != nil {
		return nil, fmt.Errorf("make /%s: %w", stateDir, err)
	}
	f, err := root.OpenFile(stateDir+"/lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &farm.Error{Kind: farm.Conflict, Code: CodeTuningBusy,
				Message: "another apply or undo works on this host now",
				Hint:    "wait for its end; `grange tune history` shows it"}
		}
		return nil, fmt.Errorf("lock /%s: %w", stateDir, err)
	}
	return func() { f.Close() }, nil
}

// makeStateDir makes the directory of all runs. Journals hold files that only root may read; the directories above hold
// the agent's images too, which QEMU has to reach, whatever our caller's umask.
func makeStateDir(root *os.Root) error {
	parents, err := missingParents(root, stateDir)
	if err != nil {
		return err
	}
	for _, dir := range parents {
		if err := root.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := root.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.Mkdir(stateDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// newJournal makes the directory of a run and writes its first line. Where that fails, there is no run.
func newJournal(root *os.Root, plan Plan, who Who, now time.Time) (*journal, error) {
	id, err := newRun(root, now)
	if err != nil {
		return nil, fmt.Errorf("make journal: %w", err)
	}
	j, err := openJournal(root, &Run{ID: id, done: map[int]bool{}, undone: map[int]bool{}})
	if err == nil {
		if err = j.start(root, plan, who, now); err == nil {
			return j, nil
		}
		j.close()
	}
	return nil, errors.Join(err, root.RemoveAll(path.Join(stateDir, id)))
}

// newRun makes the directory of a run, named after the time.
func newRun(root *os.Root, now time.Time) (id string, err error) {
	id = now.UTC().Format("20060102T150405Z")
	for n := 2; ; n++ {
		if err := root.Mkdir(path.Join(stateDir, id), 0o700); !errors.Is(err, fs.ErrExist) || n > 999 {
			return id, err
		}
		id = fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405Z"), n)
	}
}

// start writes the first line, and sees to it that there is room for those to come.
func (j *journal) start(root *os.Root, plan Plan, who Who, now time.Time) error {
	if err := plan.check(j.run.ID); err != nil {
		return err
	}
	if err := j.write(entry{Version: 1, At: &now, Who: &who, Plan: &plan, Phase: Planned}); err != nil {
		return err
	}
	if err := j.reserve(); err != nil {
		return fmt.Errorf("make room for the journal in /%s: %w", stateDir, err)
	}
	for dir := path.Join(stateDir, j.run.ID); dir != "."; dir = path.Dir(dir) {
		if err := syncDir(root, dir); err != nil {
			return fmt.Errorf("sync /%s: %w", dir, err)
		}
	}
	return nil
}

// reserve asks the file system for what the rest of a journal takes: each file that changes is in it once more, as it
// was found. One that cannot reserve is trusted.
func (j *journal) reserve() error {
	const others = 64 << 10
	err := unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, j.size+others)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil
}

func journalPath(id string) string { return path.Join(stateDir, id, "journal") }

// openJournal goes on with a run. A last line that a kill cut short announced nothing: it goes.
func openJournal(root *os.Root, run *Run) (*journal, error) {
	f, err := root.OpenFile(journalPath(run.ID), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxJournal))
	j := &journal{run, f, int64(bytes.LastIndexByte(text, '\n') + 1)}
	if err == nil {
		err = f.Truncate(j.size)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return j, nil
}

// close gives back what was reserved and not used.
func (j *journal) close() {
	j.file.Truncate(j.size)
	j.file.Close()
}

// write appends a line; it is on disk when write returns. The next line goes over one that was cut short.
func (j *journal) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if _, err = j.file.WriteAt(append(line, '\n'), j.size); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write journal: %w", errors.Join(err, j.file.Truncate(j.size)))
	}
	j.size += int64(len(line)) + 1
	return j.run.take(e)
}

func (j *journal) phase(p Phase, why error) error {
	now := time.Now()
	e := entry{Phase: p, At: &now}
	if why != nil {
		e.Error = why.Error()
	}
	return j.write(e)
}

// take brings a run up to a line of its journal.
func (r *Run) take(e entry) error {
	if e.Plan != nil {
		if e.Version != 1 || e.At == nil || e.Who == nil {
			return badJournal(r.ID, "its first line is not one that this version knows")
		}
		r.At, r.Who, r.Plan = *e.At, *e.Who, *e.Plan
		if err := r.Plan.check(r.ID); err != nil {
			return err
		}
	}
	if e.Phase != "" {
		r.Phase, r.Error = e.Phase, e.Error
	}
	known := func(n int) bool { return n >= 0 && n < len(r.Plan.Steps) }
	switch {
	case e.Begin != nil && (!known(e.Begin.Step) || len(r.records) > 0 &&
		r.records[len(r.records)-1].Step >= e.Begin.Step):
		return badJournal(r.ID, "a step begins that the plan does not have there")
	case e.Begin != nil:
		r.records = append(r.records, *e.Begin)
	case e.Done != nil && known(*e.Done):
		r.done[*e.Done] = true
	case e.Undone != nil && known(*e.Undone):
		r.undone[*e.Undone] = true
	}
	return nil
}

func badJournal(id, what string) *farm.Error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadJournal,
		Message: fmt.Sprintf("/%s: %s", journalPath(id), what),
		Hint:    "it is damaged, or a later version of this program wrote it; use that one"}
}

// check refuses steps that no plan has.
func (p Plan) check(id string) error {
	for _, s := range p.Steps {
		if !s.known() {
			return badJournal(id, fmt.Sprintf("%q is not a step that this program makes", s.Target()))
		}
	}
	return nil
}

// known reports whether a step is one that this program makes: other things may be in a file.
func (s Step) known() bool {
	switch s.Kind {
	case StepFile:
		return editable(s.Path)
	case StepUnmerge:
		return s.Path == ksmRun
	case StepValue:
		return fs.ValidPath(s.Path) && valuePath.MatchString(s.Path)
	case StepModule:
		return moduleName.MatchString(s.Unit)
	case StepService:
		return unitName.MatchString(s.Unit) && s.Old.Service != nil && s.New.Service != nil
	}
	return s.Kind == StepBoot
}

// editable reports whether a file may be configuration of the host: a journal in a foreign tree could name any other.
func editable(name string) bool {
	return fs.ValidPath(name) && (strings.HasPrefix(name, "etc/") || strings.HasPrefix(name, "boot/"))
}

// readRun reads a journal. A last line without its end is one that was being written when the program was killed.
func readRun(root *os.Root, id string) (*Run, error) {
	f, err := root.Open(journalPath(id))
	if err != nil {
		return nil, fmt.Errorf("open journal of %s: %w", id, err)
	}
	defer f.Close()
	run := &Run{ID: id, done: map[int]bool{}, undone: map[int]bool{}}
	lines := bufio.NewReader(io.LimitReader(f, maxJournal))
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var e entry
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && (n == 1) != (e.Plan != nil) {
			err = errors.New("it does not begin with a plan")
		}
		if err != nil {
			bad := badJournal(id, fmt.Sprintf("line %d", n))
			bad.Err = err
			return nil, bad
		}
		if err := run.take(e); err != nil {
			return nil, err
		}
	}
	if run.Phase == "" { // killed before the first line was whole: nothing had begun
		run.Phase = Undone
	}
	return run, nil
}

// History reads all runs of a host, the oldest first.
func History(root *os.Root) ([]*Run, error) {
	names, err := entries(root, stateDir)
	if errors.Is(err, fs.ErrPermission) {
		return nil, &farm.Error{Kind: farm.Denied, Code: farm.CodeNeedsRoot,
			Message: "only root may see what was applied here", Hint: "use sudo", Err: err}
	}
	if err != nil {
		return nil, err
	}
	var out []*Run
	for _, name := range names {
		if !runID.MatchString(name) {
			continue
		}
		if _, err := root.Stat(journalPath(name)); missing(err) {
			continue // killed before it was there
		}
		run, err := readRun(root, name)
		if err != nil {
			return nil, err
		}
		out = append(out, run)
	}
	slices.SortStableFunc(out, func(a, b *Run) int { return a.At.Compare(b.At) })
	return out, nil
}
