package capacity

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
)

// Seen is what the CPUs of a cell were like, in equal steps from a time on. What is not known is NaN.
type Seen struct {
	Cell                           string
	From                           time.Time
	Step                           time.Duration
	Total, Reserved, Refused, Free []float64
}

// Cell is where the CPU time of a cell went while it was seen, in hours of one CPU. Installed is the sum of Reserved,
// Refused, Delivered, Held and Unused.
type Cell struct {
	Cell      string    `json:"cell"`
	Hours     float64   `json:"hours"` // of the time asked for, in which the cell was seen
	Installed float64   `json:"installed"`
	Reserved  float64   `json:"reserved"` // by hosts for themselves
	Refused   float64   `json:"refused"`  // free on hosts that took nothing: closed, draining, silent, fenced
	Delivered Delivered `json:"delivered"`
	Held      float64   `json:"held"`   // by VMs that have no record yet, or beyond it; below 0: VMs share CPUs
	Unused    float64   `json:"unused"` // free, and nobody came
	Scores    []Score   `json:"scores,omitempty"`
}

// Delivered is what records of usage have: cores times time.
type Delivered struct {
	Jobs  float64 `json:"jobs"` // in VMs, workers as well
	VMs   float64 `json:"vms"`  // of the cloud
	Metal float64 `json:"metal"`
}

// Sum is all of it.
func (d Delivered) Sum() float64 { return d.Jobs + d.VMs + d.Metal }

func (d *Delivered) add(kind string, hours float64) {
	switch kind {
	case api.UsageVM:
		d.VMs += hours
	case api.UsageMetal:
		d.Metal += hours
	default:
		d.Jobs += hours
	}
}

// Score is that part of what was delivered for which the site has measured what a core does.
type Score struct {
	Unit  string  `json:"unit"`
	Hours float64 `json:"hours"` // of cores
	Score float64 `json:"score_hours"`
}

// Pledge is what a project was promised of the time asked for, and what it got in all cells while they were seen.
type Pledge struct {
	Project   string    `json:"project"`
	CPUs      int       `json:"pledged_cpus"`
	Pledged   float64   `json:"pledged"` // hours of a CPU
	Seen      float64   `json:"seen"`    // of them, those of the time in which any cell was seen
	Delivered Delivered `json:"delivered"`
}

// Present adds up what is there and what was delivered.
type Present struct {
	from, to time.Time
	seen     map[string]Seen
	cells    map[string]*Cell
	projects map[string]*Pledge
}

// NewPresent is about the time from one to another. Pledges are in CPUs, by project.
func NewPresent(from, to time.Time, seen []Seen, pledges map[string]int) *Present {
	p := &Present{from: from, to: to, seen: map[string]Seen{}, cells: map[string]*Cell{},
		projects: map[string]*Pledge{}}
	for _, s := range seen {
		c := &Cell{Cell: s.Cell}
		p.seen[s.Cell], p.cells[s.Cell] = s, c
		for i := range s.Total {
			hours := s.part(i, from, to).Hours()
			if hours == 0 {
				continue
			}
			c.Hours += hours
			c.Installed += hours * s.at(s.Total, i)
			c.Reserved += hours * s.at(s.Reserved, i)
			c.Refused += hours * s.at(s.Refused, i)
			c.Unused += hours * s.at(s.Free, i)
		}
	}
	longest := 0.0
	for _, c := range p.cells {
		longest = max(longest, c.Hours)
	}
	for project, cpus := range pledges {
		p.projects[project] = &Pledge{Project: project, CPUs: cpus, Pledged: float64(cpus) * to.Sub(from).Hours(),
			Seen: float64(cpus) * longest}
	}
	return p
}

// Add adds a record: what of its time its cell was seen in.
func (p *Present) Add(u api.Usage) {
	c := p.cells[u.Cell]
	if c == nil {
		return
	}
	hours := float64(u.Cores) * p.seen[u.Cell].overlap(u.Start, u.End, p.from, p.to).Hours()
	c.Delivered.add(u.Kind, hours)
	if u.Score > 0 {
		c.score(u.ScoreUnit, hours, u.Score)
	}
	if of := p.projects[u.Project]; of != nil {
		of.Delivered.add(u.Kind, hours)
	}
}

func (c *Cell) score(unit string, hours, score float64) {
	i := slices.IndexFunc(c.Scores, func(s Score) bool { return s.Unit == unit })
	if i < 0 {
		i = len(c.Scores)
		c.Scores = append(c.Scores, Score{Unit: unit})
	}
	c.Scores[i].Hours += hours
	c.Scores[i].Score += hours * score
}

// Result is the sum, in the order of names. Jobs without a VM take CPUs that are free for VMs.
func (p *Present) Result() (cells []Cell, pledges []Pledge) {
	for _, c := range p.cells {
		out := *c
		out.Held = c.Installed - c.Reserved - c.Refused - c.Unused - c.Delivered.Jobs - c.Delivered.VMs
		out.Unused -= c.Delivered.Metal
		cells = append(cells, out)
	}
	for _, of := range p.projects {
		pledges = append(pledges, *of)
	}
	slices.SortFunc(cells, func(a, b Cell) int { return strings.Compare(a.Cell, b.Cell) })
	slices.SortFunc(pledges, func(a, b Pledge) int { return strings.Compare(a.Project, b.Project) })
	return cells, pledges
}

// part is how much of a step lies in a time; 0 where nothing is known of it.
func (s Seen) part(i int, from, to time.Time) time.Duration {
	if math.IsNaN(s.Total[i]) {
		return 0
	}
	begin := s.From.Add(time.Duration(i) * s.Step)
	end := begin.Add(s.Step)
	if begin.Before(from) {
		begin = from
	}
	if end.After(to) {
		end = to
	}
	return max(end.Sub(begin), 0)
}

// at is 0 for what a server of an earlier release did not count.
func (s Seen) at(values []float64, i int) float64 {
	if i >= len(values) || math.IsNaN(values[i]) {
		return 0
	}
	return values[i]
}

// overlap is the time that a record and the known steps share.
func (s Seen) overlap(start, end, from, to time.Time) (sum time.Duration) {
	if start.Before(from) {
		start = from
	}
	if end.After(to) {
		end = to
	}
	first := max(int(start.Sub(s.From)/s.Step), 0)
	for i := first; i < len(s.Total) && s.From.Add(time.Duration(i)*s.Step).Before(end); i++ {
		sum += s.part(i, start, end)
	}
	return sum
}
