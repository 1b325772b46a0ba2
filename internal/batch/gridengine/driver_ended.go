package gridengine

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// place is a place in the accounting: the master appends a line when a job has ended, and never changes one. File is
// known by its first record, so that it is found again when it was rotated, copied or compressed.
type place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
}

// Ended reads the accounting file, and those that were rotated away while nobody read.
func (d *Driver) Ended(ctx context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	var at place
	if after != "" {
		if err := json.Unmarshal([]byte(after), &at); err != nil || at.Offset < 0 {
			return nil, after, batch.NoCursor(farm.GridEngine, after)
		}
	}
	files, err := accountingFiles(d.o.Accounting)
	if err != nil {
		return nil, after, batch.Away(farm.GridEngine, err)
	}
	if at.File != "" {
		from := slices.IndexFunc(files, func(f accountingFile) bool { return f.id == at.File })
		if from < 0 { // removed before it was read to its end: what is missing cannot be told
			return nil, after, batch.NoCursor(farm.GridEngine, after)
		}
		files = files[from:]
	}
	var ended []batch.Ended
	for _, f := range files {
		if f.id != at.File {
			at = place{File: f.id}
		}
		if at.Offset, err = f.read(ctx, at.Offset, func(line string) (bool, error) {
			j, ok, err := parseRecord(line)
			if err != nil {
				return false, batch.Garbled(farm.GridEngine, "the accounting file", err)
			}
			if ok {
				ended = append(ended, j)
			}
			return len(ended) < limit, nil
		}); err != nil {
			return nil, after, err
		}
		if len(ended) >= limit {
			break
		}
	}
	text, err := json.Marshal(at)
	return ended, batch.Cursor(text), err
}

// accountingFile is one that has records.
type accountingFile struct {
	path string
	id   string
	at   time.Time // of its last change
}

// accountingFiles are the file and its rotated ones (accounting.0, accounting-20260101.gz), oldest first.
func accountingFiles(path string) ([]accountingFile, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), base+".") || strings.HasPrefix(e.Name(), base+"-") {
			paths = append(paths, dir+e.Name())
		}
	}
	var files []accountingFile
	known := map[string]bool{}
	for _, p := range append([]string{path}, paths...) { // the one in use first: a copy of it is no further file
		f := accountingFile{path: p}
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // none has ended yet, or it is being rotated
		}
		if err != nil {
			return nil, err
		}
		if f.at = info.ModTime(); !info.Mode().IsRegular() {
			continue
		}
		if f.id, err = f.identity(); err != nil {
			return nil, err
		}
		if f.id != "" && !known[f.id] {
			known[f.id] = true
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b accountingFile) int {
		if (a.path == path) != (b.path == path) {
			if a.path == path {
				return 1
			}
			return -1
		}
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path))
	})
	return files, nil
}

func (f accountingFile) open() (io.ReadCloser, error) {
	file, err := os.Open(f.path)
	if err != nil || !strings.HasSuffix(f.path, ".gz") {
		return file, err
	}
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, file}, nil
}

// identity is of the first record; "" where there is none.
func (f accountingFile) identity() (string, error) {
	file, err := f.open()
	if err != nil {
		return "", err
	}
	defer file.Close()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.path, err)
		}
		if !strings.HasPrefix(line, "#") && len(line) > 2 {
			const enough = 8
			sum := sha256.Sum256([]byte(line))
			return hex.EncodeToString(sum[:enough]), nil
		}
	}
}

// read hands over whole lines from an offset on, until it is told to stop, and returns where it did.
func (f accountingFile) read(ctx context.Context, offset int64, use func(line string) (more bool, err error)) (int64,
	error) {
	file, err := f.open()
	if err != nil {
		return offset, batch.Away(farm.GridEngine, err)
	}
	defer file.Close()
	if seeker, ok := file.(io.Seeker); ok {
		_, err = seeker.Seek(offset, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, file, offset)
	}
	if err != nil {
		return offset, batch.Away(farm.GridEngine, err)
	}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return offset, nil // half a line is being written
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return offset, batch.Away(farm.GridEngine, err)
		}
		more, err := use(line)
		if err != nil {
			return offset, err
		}
		if offset += int64(len(line)); !more {
			return offset, nil
		}
	}
}

// Fields of accounting(5), counted from the left; those behind the category from the right, for it has requests in
// which anything may stand.
const (
	accQueue = iota
	accHost
	accGroup
	accOwner
	accName
	accJob
	accAccount
	accPriority
	accSubmitted
	accStarted
	accEnded
	accFailed
	accStatus
	accWallclock
	accUser     = 14
	accSystem   = 15
	accProject  = 31
	accSlots    = 34
	accTask     = 35
	accCPU      = 36
	accCategory = 39
	accBehind   = 5 // iow, pe_taskid, maxvmem, arid, ar_sub_time
)

// parseRecord reads a line. It is no end of a job's run where it is a comment, of a part of a parallel job, whose
// master has a line of its own, or of a start that failed: that job is in the queue still.
func parseRecord(line string) (batch.Ended, bool, error) {
	line = strings.TrimSuffix(line, "\n")
	if strings.HasPrefix(line, "#") || len(line) < 2 {
		return batch.Ended{}, false, nil
	}
	f := strings.Split(strings.ToValidUTF8(line, "?"), ":")
	if len(f) < accCategory+1+accBehind {
		return batch.Ended{}, false, fmt.Errorf("a record of %d fields: %.100q", len(f), line)
	}
	behind := f[len(f)-accBehind:]
	category := strings.Join(f[accCategory:len(f)-accBehind], ":")
	var bad error
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || v < 0 || v > 1<<53 {
			bad = errors.Join(bad, fmt.Errorf("invalid number %q in %.100q", text, line))
			return 0
		}
		return v
	}
	// Of a job whose shepherd was lost, one of both is 0.
	cpu := max(number(f[accCPU]), number(f[accUser])+number(f[accSystem]))
	j := batch.Ended{Job: f[accJob], Name: f[accName], User: f[accOwner],
		Account: charged(f[accProject], f[accAccount]), Queue: f[accQueue], Hosts: []string{f[accHost]},
		CPUs: int(number(f[accSlots])), Submitted: since1970(number(f[accSubmitted])),
		Started: since1970(number(f[accStarted])), Finished: since1970(number(f[accEnded])),
		CPUTime: batch.Measured(time.Duration(cpu * float64(time.Second))), MaxRSS: farm.Bytes(number(behind[2])),
		Code: int(number(f[accStatus])), Reservation: batch.ReservationOf(f[accName])}
	if task := number(f[accTask]); task > 0 {
		j.Job += "." + f[accTask]
	}
	failed, wallclock := int(number(f[accFailed])), time.Duration(number(f[accWallclock])*float64(time.Second))
	if bad != nil {
		return batch.Ended{}, false, bad
	}
	if !None(behind[1]) || j.Started.IsZero() || j.Finished.IsZero() {
		return batch.Ended{}, false, nil
	}
	j.Outcome = outcome(failed, j.Code, max(wallclock, j.Finished.Sub(j.Started)), category)
	const signalled, signals = 128, 64
	if j.Code > signalled && j.Code <= signalled+signals && failed != 0 {
		j.Signal, j.Code = j.Code-signalled, 0
	}
	return j, true, nil
}

func since1970(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// Values of "failed", sge_status(5).
const (
	failedHost    = 21 // execd did not know it any more
	failedMigrate = 24
	failedAgain   = 25 // put back, as by the wrapper
	failedLimit   = 37 // of time or of memory: there is one number for both
)

// outcome returns how a run ended. A job that qdel ended is one that died of KILL: the record does not tell them apart.
func outcome(failed, status int, ran time.Duration, category string) batch.Outcome {
	switch {
	case failed == 0 && status == 0:
		return batch.OutcomeDone
	case failed == failedHost:
		return batch.OutcomeNode
	case failed == failedMigrate, failed == failedAgain:
		return batch.OutcomeCancelled
	case failed == failedLimit:
		limit := time.Duration(0)
		_, requests, _ := strings.Cut(category, "-l ")
		requests, _, _ = strings.Cut(requests, " ")
		for r := range strings.SplitSeq(requests, ",") {
			if text, ok := strings.CutPrefix(r, "h_rt="); ok {
				limit = seconds(text)
			}
		}
		memory := strings.Contains(requests, "h_vmem=") || strings.Contains(requests, "h_rss=")
		if memory && (limit == 0 || ran < limit) {
			return batch.OutcomeMemory
		}
		return batch.OutcomeTimeout
	}
	return batch.OutcomeFailed
}
