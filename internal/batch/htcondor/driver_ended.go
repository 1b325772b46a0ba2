package htcondor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
)

// Ended reads the history file of the access point: a job is appended when it leaves the queue, with all its ad, and a
// line that ends it. condor_history reads the same file backwards, and knows no place in it. A cursor is a file, by its
// inode, and the place behind a job, with its number: so a file that took another's inode is found out. A job that went
// back into the queue is there once, with its last run.
func (d *Driver) Ended(ctx context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	at, err := parsePlace(after)
	if err != nil {
		return nil, after, err
	}
	files, err := historyFiles(d.o.History)
	if err != nil {
		return nil, after, batch.Away(farm.HTCondor, err)
	}
	first := slices.IndexFunc(files, func(f historyFile) bool { return f.inode == at.inode && f.holds(at) })
	if first < 0 { // that file was thrown away since: all there are came later. Or nobody has read yet
		first, at = 0, place{}
	}
	var all []batch.Ended
	cursor := after
	for i := first; i < len(files) && len(all) < limit; i++ {
		if i > first || at.inode == 0 {
			at = place{inode: files[i].inode}
		}
		more, next, err := files[i].read(ctx, at, limit-len(all), d.o.ReserveAs)
		if err != nil {
			return nil, after, err
		}
		if len(more) > 0 {
			all, cursor = append(all, more...), next.cursor()
		}
	}
	return all, cursor, nil
}

// place is behind a record of a history file.
type place struct {
	inode  uint64
	offset int64
	job    string // CLUSTER.PROC of the record before it; "": none
}

func (p place) cursor() batch.Cursor {
	return batch.Cursor(fmt.Sprintf("%d:%d:%s", p.inode, p.offset, p.job))
}

func parsePlace(c batch.Cursor) (place, error) {
	if c == "" {
		return place{}, nil
	}
	var p place
	parts := strings.Split(string(c), ":")
	if len(parts) != 3 {
		return p, batch.NoCursor(farm.HTCondor, c)
	}
	n, err := fmt.Sscanf(parts[0]+" "+parts[1], "%d %d", &p.inode, &p.offset)
	if p.job = parts[2]; err != nil || n != 2 || p.inode == 0 || p.offset <= 0 || p.cursor() != c {
		return p, batch.NoCursor(farm.HTCondor, c)
	}
	return p, nil
}

type historyFile struct {
	path  string
	inode uint64
}

// historyFiles are the rotated ones, which are named by their time, and the present one last.
func historyFiles(path string) ([]historyFile, error) {
	rotated, err := filepath.Glob(path + ".2*") // history.20261121T083015; others are indices and temporary
	if err != nil {
		return nil, err
	}
	slices.Sort(rotated)
	var files []historyFile
	for _, name := range append(rotated, path) {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated just now, or nothing has ended yet
		}
		if err != nil {
			return nil, err
		}
		files = append(files, historyFile{name, info.Sys().(*syscall.Stat_t).Ino})
	}
	return files, nil
}

// holds reports whether the file has, before that place, the end of that record.
func (h historyFile) holds(at place) bool {
	file, err := os.Open(h.path)
	if err != nil {
		return false
	}
	defer file.Close()
	const most = 4096 // of the line that ends a record
	from := max(at.offset-most, 0)
	before := make([]byte, at.offset-from)
	if _, err := file.ReadAt(before, from); err != nil {
		return false
	}
	line := strings.TrimSuffix(string(before), "\n")
	line = line[strings.LastIndexByte(line, '\n')+1:]
	return before[len(before)-1] == '\n' && bannerJob(line) == at.job
}

// banner is how the line begins that ends a record: *** Offset = 0 ClusterId = 1 ProcId = 0 Owner = "u" CompletionDate
// = 17952
const banner = "*** "

func bannerJob(line string) string {
	var offset int64
	var cluster, proc int
	if n, _ := fmt.Sscanf(line, "*** Offset = %d ClusterId = %d ProcId = %d", &offset, &cluster, &proc); n != 3 {
		return ""
	}
	return fmt.Sprintf("%d.%d", cluster, proc)
}

// read returns the records behind a place. What is not ended by its line is still being written.
func (h historyFile) read(ctx context.Context, at place, limit int, owner string) ([]batch.Ended, place, error) {
	file, err := os.Open(h.path)
	if err != nil {
		return nil, at, batch.Away(farm.HTCondor, err)
	}
	defer file.Close()
	if _, err := file.Seek(at.offset, io.SeekStart); err != nil {
		return nil, at, batch.Away(farm.HTCondor, err)
	}
	var all []batch.Ended
	var record strings.Builder
	for in, offset := bufio.NewReader(file), at.offset; len(all) < limit && ctx.Err() == nil; {
		line, err := in.ReadString('\n')
		offset += int64(len(line))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, at, batch.Away(farm.HTCondor, err)
		}
		if !strings.HasPrefix(line, banner) {
			const most = 4 << 20
			if record.Len() > most {
				return nil, at, batch.Garbled(farm.HTCondor, h.path,
					fmt.Errorf("no end of a record before byte %d", offset))
			}
			record.WriteString(line)
			continue
		}
		ad, err := classad.Parse(record.String())
		if err != nil {
			return nil, at, batch.Garbled(farm.HTCondor, h.path, fmt.Errorf("before byte %d: %w", offset, err))
		}
		record.Reset()
		at.offset, at.job = offset, bannerJob(strings.TrimSpace(line))
		all = append(all, endedOf(ad, owner))
	}
	return all, at, ctx.Err()
}

func endedOf(ad classad.Ad, owner string) batch.Ended {
	number := func(name string) int64 { n, _ := ad.Int(name); return n }
	at := func(name string) time.Time {
		if n := number(name); n > 0 {
			return time.Unix(n, 0).UTC()
		}
		return time.Time{}
	}
	e := batch.Ended{Job: jobID(ad.String("GlobalJobId"), int(number("ClusterId")), int(number("ProcId"))),
		Name: ad.String("JobBatchName"), User: ad.String("Owner"), Account: ad.String("AcctGroup"),
		CPUs: int(max(number("CpusProvisioned"), number("RequestCpus"), 1)), Submitted: at("QDate"),
		Started: at("JobCurrentStartDate"), Finished: at("CompletionDate"),
		MaxRSS: farm.Bytes(number("ResidentSetSize")) * farm.KiB}
	if ad.Has("RemoteUserCpu") && ad.Has("RemoteSysCpu") { // whole seconds
		e.CPUTime = new(time.Duration(number("RemoteUserCpu")+number("RemoteSysCpu")) * time.Second)
	}
	if n, ok := ad.Int("RequestCpus"); ok && n > 0 {
		e.CPUs = int(n)
	}
	if e.Finished.IsZero() { // removed
		e.Finished = at("EnteredCurrentStatus")
	}
	host := ad.String("LastRemoteHost")
	if host == "" {
		host = ad.String("RemoteHost")
	}
	if host = host[strings.LastIndexByte(host, '@')+1:]; host != "" {
		e.Hosts = []string{host}
	}
	if e.User == owner {
		e.Reservation = ad.String("GrangeBooking")
	}
	killed, _ := ad.Bool("ExitBySignal")
	switch held := number("LastHoldReasonCode"); {
	case number("JobStatus") == jobCompleted && killed:
		e.Outcome, e.Signal = batch.OutcomeFailed, int(number("ExitSignal"))
	case number("JobStatus") == jobCompleted:
		e.Code, e.Outcome = int(number("ExitCode")), batch.OutcomeFailed
		if e.Code == 0 {
			e.Outcome = batch.OutcomeDone
		}
	case held == heldDuration || held == heldExecute: // a job beyond its limits is held, and its user removes it
		e.Outcome = batch.OutcomeTimeout
	case held == heldResources:
		e.Outcome = batch.OutcomeMemory
	default:
		e.Outcome = batch.OutcomeCancelled
	}
	return e
}

// Some of HoldReasonCode.
const (
	heldResources = 34
	heldDuration  = 46
	heldExecute   = 47
)
