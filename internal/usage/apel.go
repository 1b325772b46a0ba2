package usage

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
)

// Site is what messages to APEL say of the site.
type Site struct {
	Name    string // as the site is registered: of GOCDB
	Submit  string // of grid messages: the name of the CE with its queue's path
	Service string // of cloud messages: the name of the cloud's service
}

// PerMessage is how many records a message has: as APEL's own clients have it.
const PerMessage = 1000

// The first lines of messages.
const (
	gridHead  = "APEL-individual-job-message: v0.3"
	cloudHead = "APEL-cloud-message: v0.4"
)

// GridMessage is a message with records of jobs and workers.
func (s Site) GridMessage(records []api.Usage) string {
	return message(gridHead, records, s.gridRecord)
}

// CloudMessage is a message with intervals of cloud VMs.
func (s Site) CloudMessage(records []api.Usage) string {
	return message(cloudHead, records, s.cloudRecord)
}

// message has a line for each key of each record, and a line between records.
func message(head string, records []api.Usage, of func(api.Usage) [][2]string) string {
	var b strings.Builder
	b.WriteString(head + "\n")
	for _, u := range records {
		for _, pair := range of(u) {
			if pair[1] != "" {
				fmt.Fprintf(&b, "%s: %s\n", pair[0], oneLine(pair[1]))
			}
		}
		b.WriteString("%%\n")
	}
	return b.String()
}

// oneLine keeps what comes from outside from being a line of its own, or the end of a record.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "%%", "%")
}

func (s Site) gridRecord(u api.Usage) [][2]string {
	start, end := times(u)
	return append([][2]string{
		{"Site", s.Name},
		{"SubmitHost", s.Submit},
		{"MachineName", u.Host},
		{"Queue", u.Queue},
		{"LocalJobId", LocalJob(u)},
		{"LocalUserId", u.User},
		{"GlobalUserName", ""},
		{"FQAN", u.FQAN},
		{"WallDuration", whole(u.Wall)},
		{"CpuDuration", wholeOrNone(u.CPU)},
		{"Processors", strconv.Itoa(u.Cores)},
		{"NodeCount", "1"},
		{"StartTime", start},
		{"EndTime", end},
		{"InfrastructureDescription", "APEL-GRANGE"},
		{"InfrastructureType", infrastructure(u)},
		{"MemoryReal", kilobytes(u.MemoryPeak)},
		{"MemoryVirtual", kilobytes(u.Memory)},
	}, level(u)...)
}

// LocalJob is what the site calls a job: the batch system's own number where there is one, and for each VM another.
func LocalJob(u api.Usage) string {
	if _, number, ok := strings.Cut(u.Batch, "/"); ok {
		return number + "." + u.ID[:min(8, len(u.ID))]
	}
	return u.ID
}

// infrastructure is grid for what came with a VO, and local for the rest.
func infrastructure(u api.Usage) string {
	if u.FQAN != "" {
		return "grid"
	}
	return "local"
}

// level is the benchmark of a job's core, as APEL has it; nothing where the site has none, and APEL refuses one without
// the other.
func level(u api.Usage) [][2]string {
	unit, score, ok := benchmark(u)
	if !ok {
		return nil
	}
	return [][2]string{{"ServiceLevelType", unit}, {"ServiceLevel", strconv.FormatFloat(score, 'f', -1, 64)}}
}

// ScoredForAPEL reports whether a record has a score in a unit that APEL takes. Its server refuses records of jobs
// without one, whatever its message format says.
func ScoredForAPEL(u api.Usage) bool {
	_, _, ok := benchmark(u)
	return ok
}

// TakenByAPEL reports whether a record of a job has what the server of APEL wants of each: it refuses a whole message
// with a record that has no CpuDuration.
func TakenByAPEL(u api.Usage) bool { return u.CPU != nil }

// benchmark is the score of a core in a unit that APEL takes.
func benchmark(u api.Usage) (unit string, score float64, ok bool) {
	names := map[string]string{"hs06": "hepspec", "hepspec": "hepspec", "hepspec06": "hepspec",
		"hepscore": "HEPscore23", "hepscore23": "HEPscore23", "si2k": "Si2k"}
	unit, ok = names[strings.ToLower(u.ScoreUnit)]
	return unit, u.Score, ok && u.Score > 0
}

func (s Site) cloudRecord(u api.Usage) [][2]string {
	start, end := times(u)
	status := "completed"
	if u.Ended == api.EndedCut {
		status = "started"
	}
	unit, score, ok := benchmark(u)
	core := ""
	if ok {
		core = strconv.FormatFloat(score, 'f', -1, 64)
	} else {
		unit = ""
	}
	return [][2]string{
		{"RecordCreateTime", end},
		// each interval is a VM of its own for APEL, which keeps one record of a VM and month
		{"VMUUID", u.ID},
		{"SiteName", s.Name},
		{"CloudComputeService", s.Service},
		{"MachineName", u.Name},
		{"LocalUserId", u.User},
		{"LocalGroupId", u.Project},
		{"FQAN", fqanOrNone(u)},
		{"Status", status},
		{"StartTime", start},
		{"EndTime", end},
		{"WallDuration", whole(u.Wall)},
		{"CpuDuration", wholeOrNone(u.CPU)},
		{"CpuCount", strconv.Itoa(u.Cores)},
		{"NetworkInbound", gigabytes(u.NetworkIn)},
		{"NetworkOutbound", gigabytes(u.NetworkOut)},
		{"Memory", strconv.FormatUint(u.Memory>>20, 10)},
		{"Disk", strconv.FormatUint(u.Scratch>>30, 10)},
		{"BenchmarkType", unit},
		{"Benchmark", core},
		{"ImageId", u.Digest},
		{"CloudType", "grange"},
	}
}

// fqanOrNone is the word None where there is no FQAN: APEL's parser reads the key of each cloud record.
func fqanOrNone(u api.Usage) string {
	if u.FQAN == "" {
		return "None"
	}
	return u.FQAN
}

// Withheld stands for a person whom nobody is to know.
const Withheld = "withheld"

// Masked is a record that names no person: neither the user nor the names that users give.
func Masked(u api.Usage) api.Usage {
	u.User, u.UID, u.Name, u.Batch = Withheld, 0, "", ""
	return u
}

// times are both in seconds since 1970. APEL refuses an end before its start, as a clock that was set back makes it,
// and goes by the end for the month.
func times(u api.Usage) (start, end string) {
	from, to := u.Start.Unix(), u.End.Unix()
	if next, err := ParseMonth(Next(Month(u))); err == nil {
		to = min(to, next.Unix()-1)
	}
	return strconv.FormatInt(from, 10), strconv.FormatInt(max(to, from), 10)
}

func whole(seconds float64) string { return strconv.FormatInt(Seconds(seconds), 10) }

func wholeOrNone(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return whole(*seconds)
}

// Seconds is a duration as APEL takes it.
func Seconds(s float64) int64 { return int64(math.Round(s)) }

func kilobytes(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n>>10, 10)
}

func gigabytes(n *uint64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint(*n>>30, 10)
}

// QueueName is the name of a message in a directory that ssmsend takes, as dirq's QueueSimple has it: a directory of
// the minute, and a file of seconds, microseconds and something random.
func QueueName(at time.Time, random uint32) (dir, file string) {
	seconds := at.Unix()
	return fmt.Sprintf("%08x", seconds-seconds%60), fmt.Sprintf("%08x%05x%x", seconds, at.Nanosecond()/1000, random%16)
}
