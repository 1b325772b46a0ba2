package gridengine

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// qstatJob is an entry of `qstat -xml`: a job, a running element of an array, or its elements that wait.
type qstatJob struct {
	Listed    string       `xml:"state,attr"` // running or pending
	Number    int          `xml:"JB_job_number"`
	Short     string       `xml:"JB_name"`
	Full      string       `xml:"full_job_name"` // with -r
	Owner     string       `xml:"JB_owner"`
	Project   string       `xml:"JB_project"` // with -ext
	State     string       `xml:"state"`
	Submitted string       `xml:"JB_submission_time"` // of those that wait
	Started   string       `xml:"JAT_start_time"`     // of those that run
	Place     string       `xml:"queue_name"`         // QUEUE@HOST
	Slots     int          `xml:"slots"`
	Tasks     string       `xml:"tasks"` // of arrays
	Requests  []qstatValue `xml:"hard_request"`
	Queues    []string     `xml:"hard_req_queue"`
}

type qstatValue struct {
	Name  string `xml:"name,attr"`
	Value string `xml:",chardata"`
}

// jobs runs qstat.
func (d *Driver) jobs(ctx context.Context, args ...string) ([]qstatJob, error) {
	out, err := d.command(ctx, "qstat", append(args, "-xml")...)
	if err != nil {
		return nil, err
	}
	jobs, err := parseJobs(out)
	if err != nil {
		return nil, batch.Garbled(farm.GridEngine, "qstat", err)
	}
	return jobs, nil
}

func parseJobs(text string) ([]qstatJob, error) {
	var list struct {
		XMLName xml.Name   `xml:"job_info"`
		Running []qstatJob `xml:"queue_info>job_list"`
		Pending []qstatJob `xml:"job_info>job_list"`
	}
	if err := readXML(text, &list); err != nil {
		return nil, err
	}
	all := append(list.Running, list.Pending...)
	for _, j := range all {
		if j.Number < 1 || j.State == "" {
			return nil, fmt.Errorf("job %d in state %q", j.Number, j.State)
		}
	}
	return all, nil
}

// readXML reads what Grid Engine calls XML. Names and arguments that users chose stand in it as they are, whatever
// their bytes.
func readXML(text string, into any) error {
	clean := bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, bytes.ToValidUTF8([]byte(text), []byte("?")))
	decoder := xml.NewDecoder(bytes.NewReader(bytes.ReplaceAll(clean, []byte("]]>"), []byte("]]?"))))
	decoder.Strict = false // it does not escape all that it should
	return decoder.Decode(into)
}

func (j qstatJob) name() string {
	if j.Full != "" {
		return j.Full
	}
	return j.Short
}

func (j qstatJob) running() bool { return j.Listed == "running" }

// id names a job as the agent does: the elements of an array with their numbers.
func (j qstatJob) id() string {
	if j.Tasks == "" {
		return strconv.Itoa(j.Number)
	}
	return fmt.Sprintf("%d.%s", j.Number, j.Tasks)
}

func (j qstatJob) where() (queue, host string) {
	queue, host, _ = strings.Cut(j.Place, "@")
	return queue, host
}

func (j qstatJob) request(name string) string {
	for _, r := range j.Requests {
		if r.Name == name {
			return strings.TrimSpace(r.Value)
		}
	}
	return ""
}

// memory is that of the whole job: h_vmem is of each slot, h_rss of the job.
func (j qstatJob) memory() (farm.Bytes, error) {
	if text := j.request("h_vmem"); text != "" {
		n, err := allotment.GridEngineSize(text)
		return n * farm.Bytes(max(j.Slots, 1)), err
	}
	return allotment.GridEngineSize(j.request("h_rss"))
}

// wantedQueue is the one that the job asked for; "" where it asked for none, or for some of several.
func (j qstatJob) wantedQueue() string {
	if len(j.Queues) != 1 {
		return ""
	}
	queue, _, _ := strings.Cut(j.Queues[0], "@")
	if strings.ContainsAny(queue, "*?[!|&(") {
		return ""
	}
	return queue
}

// moment is a time as qstat prints it to us, in UTC.
func moment(text string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// detail is what only `qstat -j` tells of a job.
type detail struct {
	Number  int    `xml:"JB_job_number"`
	Owner   string `xml:"JB_owner"`
	Account string `xml:"JB_account"`
	Project string `xml:"JB_project"`
}

// account is whom the job is charged to: its project, or the word that its user gave (-A).
func (d detail) account() string { return charged(d.Project, d.Account) }

func charged(project, account string) string {
	if !None(project) {
		return project
	}
	if None(account) || account == "sge" { // is what stands there when nobody said anything
		return ""
	}
	return account
}

// details asks for jobs by their numbers. Those that are over meanwhile are left out.
func (d *Driver) details(ctx context.Context, numbers []int) ([]detail, error) {
	var all []detail
	const most = 500 // of one call: qstat prints each job's environment as well
	for part := range slices.Chunk(numbers, most) {
		var list []string
		for _, n := range part {
			list = append(list, strconv.Itoa(n))
		}
		out, err := d.command(ctx, "qstat", "-j", strings.Join(list, ","), "-xml")
		if err != nil {
			return nil, err
		}
		found, err := parseDetails(out)
		if err != nil {
			return nil, batch.Garbled(farm.GridEngine, "qstat -j", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func parseDetails(text string) ([]detail, error) {
	var list struct {
		XMLName xml.Name
		Jobs    []detail `xml:"djob_info>element"`
	}
	if err := readXML(text, &list); err != nil {
		return nil, err
	}
	if name := list.XMLName.Local; name != "detailed_job_info" && name != "unknown_jobs" {
		return nil, errors.New("it is a " + name)
	}
	return list.Jobs, nil
}

func (d *Driver) accounts(ctx context.Context, numbers []int) (map[int]string, error) {
	all, err := d.details(ctx, numbers)
	accounts := map[int]string{}
	for _, one := range all {
		accounts[one.Number] = one.account()
	}
	return accounts, err
}
