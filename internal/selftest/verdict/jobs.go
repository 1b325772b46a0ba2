package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Copy is a job that was sent bytes, sent them back, and said on its third stream what it got.
type Copy struct {
	Job
	Sent, Received int64
	Same           bool // what came back is what was sent
	SeenInGuest    bool // the guest got it, by its own digest
	Apart          bool // standard error has what was written there, and nothing else
	Took           time.Duration
}

// Job is how a job ended.
type Job struct {
	Code    string // of why it was not started; "": it was
	Refused bool   // there was no room
	Status  int
	Details []string
}

// noJob is the finding where the job of a check was not started; nil where it was.
func (j Job) noJob() *Finding {
	switch {
	case j.Refused:
		return &Finding{Verdict: NotApplicable, Reason: noRoomNow,
			Remedy: whenQuiet}
	case j.Code != "":
		f := Failed("its job was not started", j.Code)
		f.Details = j.Details
		return &f
	}
	return nil
}

// JudgeStreams decides whether streams arrive whole, in order and apart.
func JudgeStreams(c Copy) Finding {
	if none := c.noJob(); none != nil {
		return *none
	}
	f := Finding{Verdict: Bad, Details: c.Details, Remedy: "report it, with the agent's log",
		Figures: map[string]float64{"bytes": float64(c.Sent), "seconds": c.Took.Seconds()}}
	switch {
	case c.Status != 0:
		f.Reason = fmt.Sprintf("the job that copies ended with status %d", c.Status)
	case !c.SeenInGuest:
		f.Reason = "the guest did not get what was sent"
	case c.Received != c.Sent:
		f.Reason = fmt.Sprintf("of %d bytes %d came back", c.Sent, c.Received)
	case !c.Same:
		f.Reason = "other bytes came back than were sent"
	case !c.Apart:
		f.Reason = "standard error has other bytes than were written to it"
	default:
		f.Verdict, f.Remedy = Good, ""
		f.Reason = fmt.Sprintf("%d bytes of every value went in and came back the same, with errors apart", c.Sent)
	}
	return f
}

// Ending is a job that ends on purpose.
type Ending struct {
	Job
	How  string // "exit 1", "signal 9"
	Want int
}

// JudgeExits decides whether the ends of jobs come back as they are.
func JudgeExits(all []Ending) Finding {
	var right, wrong []string
	var none *Finding
	for _, e := range all {
		if no := e.noJob(); no != nil {
			none = no
			continue
		}
		if e.Status != e.Want {
			wrong = append(wrong, fmt.Sprintf("%s came back as status %d, not %d", e.How, e.Status, e.Want))
			continue
		}
		right = append(right, fmt.Sprintf("%s as %d", e.How, e.Want))
	}
	switch {
	case len(wrong) > 0:
		return Finding{Verdict: Bad, Reason: list(wrong), Remedy: "report it, with the agent's log"}
	case none != nil:
		return *none
	}
	return Finding{Verdict: Good, Reason: strings.Join(right, ", ")}
}

// Residue is what was there after jobs and not before, by kind.
type Residue struct {
	Jobs, AtOnce, Failed int
	Code                 string // of the first that failed
	Left                 map[string][]string
	Details              []string
}

// JudgeLeaks decides whether jobs left something behind. What is left is counted by kind; its names are details.
func JudgeLeaks(r Residue) Finding {
	f := Finding{Details: r.Details, Figures: map[string]float64{"jobs": float64(r.Jobs), "at_once": float64(r.AtOnce),
		"failed": float64(r.Failed)}}
	var kinds []string
	left := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Left)) {
		items := r.Left[kind]
		if len(items) == 0 {
			continue
		}
		left += len(items)
		kinds = append(kinds, fmt.Sprintf("%s: %d", kind, len(items)))
		for _, item := range items {
			f.Details = append(f.Details, kind+": "+item)
		}
	}
	f.Figures["left"] = float64(left)
	jobs := count(r.Jobs, "job")
	switch {
	case left > 0:
		f.Verdict, f.Reason = Bad, fmt.Sprintf("after %s there is more than before: %s", jobs, list(kinds))
		f.Remedy = "repeat it with --site, which names each, and report it"
	case r.Failed == r.Jobs && r.Code == noRoom:
		f.Verdict, f.Reason, f.Remedy = NotApplicable, noRoomNow, whenQuiet
	case r.Failed > 0:
		f.Verdict = Bad
		f.Reason = fmt.Sprintf("%d of %s failed%s; nothing is left of them", r.Failed, jobs, because(r.Code))
		f.Remedy = remedyOf(r.Code)
	default:
		f.Verdict = Good
		f.Reason = fmt.Sprintf("nothing is left after %s, %d at once", jobs, r.AtOnce)
	}
	return f
}

// noRoom is the code of a host that cannot hold a VM now.
const noRoom = "no-room"
