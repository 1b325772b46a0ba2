package fleet

import (
	"time"

	"github.com/grange-project/grange/api"
)

// RouteUsage takes what VMs of a host have used: POST UsageBatch → UsageTaken. It is for agents of capability 5.
const RouteUsage = "/v1/host/usage"

// CapabilityUsage is that of the first agents and servers that know RouteUsage.
const CapabilityUsage = 5

// MaxUsageBatch is the most records of one request.
const MaxUsageBatch = 500

// UsageBatch is what a host brings. A record that the server has already does nothing. One without records asks for the
// server's books.
type UsageBatch struct {
	Records []api.Usage `json:"records"`
}

// UsageTaken is the answer: the server has all records that it will ever have of these.
type UsageTaken struct {
	New     int `json:"new"`
	Refused int `json:"refused,omitempty"` // that made no sense: its log says why
	// Outside are those that the host cannot have run, as far as the server knows: they count for nobody.
	Outside int `json:"outside,omitempty"`
	// Books are named anew by each restore of a backup, which lacks what hosts have brought since; "" before the first.
	// A host that has brought records to other books brings all that it has again.
	Books string `json:"books,omitempty"`
}

// UsageSummary is what VMs have used, added up.
type UsageSummary struct {
	By     string      `json:"by"` // user, project, account, vo, cell, host, kind or month
	From   string      `json:"from"`
	To     string      `json:"to"` // months, both included
	Closed string      `json:"closed,omitempty"`
	Lines  []UsageLine `json:"lines"`
}

// UsageLine is one sum.
type UsageLine struct {
	Key       string  `json:"key"`
	Records   int     `json:"records"`
	Late      int     `json:"late,omitempty"` // of them, those whose own month was closed
	WallHours float64 `json:"wall_hours"`
	CoreHours float64 `json:"core_hours"` // cores times wall
	CPUHours  float64 `json:"cpu_hours"`  // of QEMU
	// CPUUnknown is the number of records whose CPU time is not known, and CPUUnknownHours their core hours.
	CPUUnknown      int     `json:"cpu_unknown,omitempty"`
	CPUUnknownHours float64 `json:"cpu_unknown_core_hours,omitempty"`
	JobHours        float64 `json:"job_cpu_hours"`
	// by the unit of the site's scores: only what has a score
	Scored []UsageScored `json:"scored,omitempty"`
}

// UsageScored is the part of a sum for whose hardware and size the site has a score.
type UsageScored struct {
	Unit       string  `json:"unit"`        // as HEPscore23
	CoreHours  float64 `json:"core_hours"`  // of these
	ScoreHours float64 `json:"score_hours"` // each times the score of its core
}

// UsageClosed says up to which month usage is closed.
type UsageClosed struct {
	Month string     `json:"month"` // "": none is
	By    string     `json:"by,omitempty"`
	At    *time.Time `json:"at,omitempty"`
}

// OutsideQuery chooses records that count for nobody: by the name of their host, the word that says why, and when they
// ended. Empty fields choose all.
type OutsideQuery struct {
	Host, Why string
	From, To  time.Time
}

// UsageWithdrawal says which records of a host are taken back: those that ended from a time on and before another.
type UsageWithdrawal struct {
	Host   string    `json:"host"` // name
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Came   bool      `json:"came,omitempty"`    // the times are when the server took them
	DryRun bool      `json:"dry_run,omitempty"` // only count them
}

// UsageWithdrawn is what was taken back.
type UsageWithdrawn struct {
	UsageWithdrawal
	Records   int     `json:"records"`
	Closed    int     `json:"closed"` // of them, those of months that are closed: exports that were made have them
	CoreHours float64 `json:"core_hours"`
}
