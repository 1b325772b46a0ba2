package usage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/atomicfile"
)

// records are the records of a host, on the disk. Those of VMs that run have a file each, which is replaced whole.
// Those that have ended are lines of segments, which are only appended to; a segment is removed when it is old. A
// record is a line first, on the disk, and then no file any more, on the disk too: after any crash at most the one that
// was ended last has both, and the line counts.
type records struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	ended *os.File // the last segment, for appending
	last  int      // its number
	size  int64
	sent  delivery        // what the server has
	stays map[string]bool // IDs of records that are lines, and whose files could not be removed
	news  chan struct{}
}

// mark is a place in the segments: all before it.
type mark struct {
	Segment int   `json:"segment"`
	Offset  int64 `json:"offset"`
}

// delivery is how far the server has the records, and the name of its books that have them.
type delivery struct {
	mark
	Books string `json:"books,omitempty"`
}

const (
	maxSegment = 4 << 20        // bytes; then the next one begins
	clockBack  = 24 * time.Hour // that a clock may have been set back, so that files are older than what is in them
	// how much longer is kept what no server has taken: a host that has left its fleet has nobody to take it
	keepUnsent    = 366 * 24 * time.Hour
	sentFile      = "sent.json"
	commentedFile = "commented.json"
	openSuffix    = ".open.json"
	lineSuffix    = ".jsonl"
)

func openRecords(dir string, log *slog.Logger) (*records, []entry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("records of usage: %w", err)
	}
	j := &records{dir: dir, log: log, stays: map[string]bool{}, news: make(chan struct{})}
	if text, err := os.ReadFile(filepath.Join(dir, sentFile)); err == nil {
		if err := json.Unmarshal(text, &j.sent); err != nil {
			j.sent = delivery{} // all is sent again, and known by its IDs
		}
	}
	if err := j.openLast(); err != nil {
		return nil, nil, fmt.Errorf("records of usage: %w", err)
	}
	running, err := j.readOpen()
	return j, running, err
}

// openLast opens the last segment, without a line that a crash has cut short: its record still has its file.
func (j *records) openLast() error {
	numbers, err := j.segments()
	if err != nil {
		return err
	}
	j.last = 1
	if n := len(numbers); n > 0 {
		j.last = numbers[n-1]
	}
	f, err := os.OpenFile(j.segment(j.last), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	whole := int64(bytes.LastIndexByte(text, '\n') + 1)
	if err == nil && whole < int64(len(text)) {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	j.ended, j.size = f, whole
	return nil
}

func (j *records) segment(number int) string {
	return filepath.Join(j.dir, fmt.Sprintf("%08d%s", number, lineSuffix))
}

// segments are the numbers of those that there are, in order.
func (j *records) segments() (numbers []int, err error) {
	paths, err := filepath.Glob(filepath.Join(j.dir, "*"+lineSuffix))
	for _, path := range paths {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(path), "%08d"+lineSuffix, &n); err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// readOpen reads the records of VMs that ran. One whose line is there has ended.
func (j *records) readOpen() (running []entry, err error) {
	ended := map[string]bool{}
	for _, number := range []int{j.last - 1, j.last} {
		err := j.each(mark{Segment: number}, number, func(u api.Usage, _ mark) bool { ended[u.ID] = true; return true })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	paths, err := filepath.Glob(filepath.Join(j.dir, "*"+openSuffix))
	for _, path := range paths {
		var e entry
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		switch {
		case err != nil || e.Usage.ID+openSuffix != filepath.Base(path):
			j.log.Error("a record of usage cannot be read; it is left alone", "path", path, "error", err)
		case ended[e.Usage.ID]:
			if err := os.Remove(path); err != nil {
				j.log.Error("the file of a record of usage stays", "path", path, "error", err)
			}
		default:
			running = append(running, e)
		}
	}
	return running, err
}

// keep writes the record of a VM that runs.
func (j *records) keep(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(j.dir, e.Usage.ID+openSuffix), text, 0o600)
}

// end makes a record a line, and removes its file. After an error it is no line, and end may be called again.
func (j *records) end(u api.Usage) error {
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(append(text, '\n')); err != nil {
		return err
	}
	j.tell()
	j.stays[u.ID] = true
	j.removeEnded()
	return nil
}

// forget removes the file of a record that is to be none.
func (j *records) forget(id string) error {
	err := os.Remove(filepath.Join(j.dir, id+openSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.SyncDir(j.dir))
}

// removeEnded removes the files of records that are lines, on the disk: a file that came back after a power cut would
// be taken for a VM's that runs.
func (j *records) removeEnded() {
	var errs []error
	for id := range j.stays {
		if err := os.Remove(filepath.Join(j.dir, id+openSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, atomicfile.SyncDir(j.dir))...); err != nil {
		j.log.Error("files of records of usage that have ended stay for now", "error", err)
		return
	}
	clear(j.stays)
}

// append adds a line, on the disk; after an error none of it is there.
func (j *records) append(line []byte) error {
	if j.size > 0 && j.size+int64(len(line)) > maxSegment {
		if err := j.next(); err != nil {
			return err
		}
	}
	_, err := j.ended.Write(line)
	if err == nil {
		err = j.ended.Sync()
	}
	if err != nil {
		_, seek := j.ended.Seek(j.size, io.SeekStart)
		return errors.Join(err, j.ended.Truncate(j.size), seek)
	}
	j.size += int64(len(line))
	return nil
}

// next begins another segment.
func (j *records) next() error {
	f, err := os.OpenFile(j.segment(j.last+1), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = atomicfile.SyncDir(j.dir)
	}
	if err != nil {
		return err
	}
	old := j.ended
	j.ended, j.size, j.last = f, 0, j.last+1
	return old.Close()
}

// each calls do with the lines of a segment behind a place, and the place behind each, until do returns false. A line
// that makes no sense is passed over.
func (j *records) each(from mark, number int, do func(u api.Usage, behind mark) bool) error {
	f, err := os.Open(j.segment(number))
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	if from.Segment == number {
		at = from.Offset
	}
	lines := bufio.NewReader(io.NewSectionReader(f, at, 2*maxSegment))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what is left is being written
		}
		if err != nil {
			return err
		}
		at += int64(len(line))
		var u api.Usage
		if err := json.Unmarshal(line, &u); err != nil || u.ID == "" {
			j.log.Error("a line of the records of usage makes no sense", "segment", number, "error", err)
			continue
		}
		if !do(u, mark{number, at}) {
			return nil
		}
	}
}

// pending are records that the server does not have, the oldest first, and the place behind them.
func (j *records) pending(limit int) (out []api.Usage, behind mark, err error) {
	j.mu.Lock()
	sent := j.sent.mark
	j.mu.Unlock()
	return j.since(sent, limit)
}

// since are records that ended behind a place, the oldest first, and the place behind them.
func (j *records) since(from mark, limit int) (out []api.Usage, behind mark, err error) {
	j.mu.Lock()
	end := mark{j.last, j.size} // what is behind the end may be taken back: the disk failed
	j.mu.Unlock()
	behind = from
	numbers, err := j.segments()
	if err != nil {
		return nil, behind, err
	}
	for _, number := range numbers {
		if number < from.Segment || len(out) == limit {
			continue
		}
		err := j.each(from, number, func(u api.Usage, at mark) bool {
			if at.after(end) {
				return false
			}
			out, behind = append(out, u), at
			return len(out) < limit
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, from, err
		}
	}
	return out, behind, nil
}

// after reports whether a place is behind another one.
func (m mark) after(o mark) bool {
	return m.Segment > o.Segment || m.Segment == o.Segment && m.Offset > o.Offset
}

// told is the place up to which the batch system's comments of jobs were written.
func (j *records) told() (at mark) {
	if text, err := os.ReadFile(filepath.Join(j.dir, commentedFile)); err == nil && json.Unmarshal(text, &at) != nil {
		at = mark{} // those of the last hour are written again
	}
	return at
}

func (j *records) tellTo(at mark) error {
	text, err := json.Marshal(at)
	if err == nil {
		err = atomicfile.Write(filepath.Join(j.dir, commentedFile), text, 0o600)
	}
	return err
}

// before reports whether all records of a segment ended before a time.
func (j *records) before(number int, t time.Time) bool {
	info, err := os.Stat(j.segment(number))
	return err == nil && info.ModTime().Add(clockBack).Before(t)
}

// lately is a place before all records that ended since a time.
func (j *records) lately(since time.Time) mark {
	numbers, _ := j.segments()
	for _, number := range numbers {
		if !j.before(number, since) {
			return mark{Segment: number}
		}
	}
	return mark{}
}

// delivered notes that the server has all before a place. Where its books have another name, it was restored from a
// backup and has some of them only: all are brought again, and known by their IDs.
func (j *records) delivered(behind mark, books string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	sent := delivery{behind, books}
	if books != j.sent.Books {
		j.log.Info("the server has other books than before: all records of usage are brought again")
		sent.mark = mark{}
	}
	if sent == j.sent {
		return nil
	}
	text, err := json.Marshal(sent)
	if err == nil {
		err = atomicfile.Write(filepath.Join(j.dir, sentFile), text, 0o600)
	}
	if err != nil {
		return err
	}
	if sent.mark == (mark{}) {
		j.tell()
	}
	j.sent = sent
	return nil
}

// tell says that there are records to be brought.
func (j *records) tell() {
	close(j.news)
	j.news = make(chan struct{})
}

// changed is closed when the next record has ended, or all are to be brought again.
func (j *records) changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.news
}

// expire removes segments that nothing was added to since a time. What the server is to have and does not stays for
// keepUnsent longer.
func (j *records) expire(before time.Time, toServer bool) {
	j.mu.Lock()
	sent, last := j.sent.mark, j.last
	toServer = toServer || sent != mark{}
	j.mu.Unlock()
	numbers, err := j.segments()
	if err != nil {
		j.log.Error("records of usage", "error", err)
	}
	for _, number := range numbers {
		path := j.segment(number)
		info, err := os.Stat(path)
		if number == last || err != nil || info.ModTime().After(before) {
			continue
		}
		if unsent := toServer && number >= sent.Segment; unsent && info.ModTime().After(before.Add(-keepUnsent)) {
			continue
		} else if unsent {
			j.log.Warn("records of usage that no server took are removed", "path", path, "last", info.ModTime())
		}
		if err := os.Remove(path); err != nil {
			j.log.Error("old records of usage stay", "path", path, "error", err)
		}
	}
}

// read calls do with the records that ended in a time.
func (j *records) read(from, to time.Time, do func(api.Usage) error) error {
	numbers, err := j.segments()
	if err != nil {
		return err
	}
	var failed error
	for _, number := range numbers {
		if j.before(number, from) {
			continue
		}
		err := j.each(mark{}, number, func(u api.Usage, _ mark) bool {
			if !u.End.Before(from) && u.End.Before(to) {
				failed = do(u)
			}
			return failed == nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

func (j *records) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended.Close()
}
