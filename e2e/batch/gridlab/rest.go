package gridlab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

// RunToken runs a script as the holder of a token, over the computing element's own interface: the client of this
// release knows certificates only (ARC CE REST interface specification, version 1.0).
func (l *Lab) RunToken(ctx context.Context, token string, j Job) (Outcome, error) {
	r, err := l.rest(token)
	if err != nil {
		return Outcome{}, err
	}
	answer, err := r.do(ctx, "POST", "/jobs?action=new", "application/rsl", j.description(""))
	if err != nil {
		return Outcome{}, err
	}
	job, err := only(answer)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{ID: job.ID}
	if _, err := r.do(ctx, "PUT", "/jobs/"+o.ID+"/session/job.sh", "application/octet-stream", j.Script); err != nil {
		return o, err
	}
	if err := r.await(ctx, &o); err != nil {
		return o, err
	}
	diag, err := r.do(ctx, "GET", "/jobs/"+o.ID+"/diagnose/diag", "", "")
	if err != nil {
		return o, err
	}
	if m := diagCode.FindStringSubmatch(diag); m != nil {
		o.Code = m[1]
	}
	if o.Stdout, err = r.do(ctx, "GET", "/jobs/"+o.ID+"/session/out.txt", "", ""); err != nil {
		return o, err
	}
	o.Stderr, err = r.do(ctx, "GET", "/jobs/"+o.ID+"/session/err.txt", "", "")
	return o, err
}

var diagCode = regexp.MustCompile(`(?m)^exitcode=(\d+)$`)

// Job is what is submitted.
type Job struct {
	Queue   string
	Runtime string // runtime environment; "": none
	Script  string
	Args    []string
}

// description is the job in the language of xRSL. Without a source the client uploads the script itself.
func (j Job) description(source string) string {
	text := fmt.Sprintf(
		`&(executable="job.sh")(inputFiles=("job.sh" "%s"))(outputFiles=("out.txt" "")("err.txt" ""))(stdout="out.txt")(stderr="err.txt")`+
			`(jobname="grid")(queue="%s")(count=1)(memory=1000)(walltime="10 minutes")`, source, j.Queue)
	if j.Runtime != "" {
		text += `(runtimeenvironment="` + j.Runtime + `")`
	}
	if len(j.Args) > 0 {
		text += `(arguments="` + strings.Join(j.Args, `" "`) + `")`
	}
	return text
}

// rest talks to the computing element with a token.
type rest struct {
	url, token string
	http       *http.Client
}

func (l *Lab) rest(token string) (*rest, error) {
	ca, err := os.ReadFile(l.path("ca.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &rest{l.URL + "/rest/1.0", token,
		&http.Client{Timeout: 30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}}, nil
}

func (r *rest) do(ctx context.Context, method, path, kind, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	request.Header.Set("Accept", "application/json")
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := r.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return string(text), nil
}

type restJob struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Status string `json:"status-code"`
	Reason string `json:"reason"`
}

// only is the one job of an answer, which is a list except where it has one element.
func only(answer string) (restJob, error) {
	var one struct{ Job restJob }
	var many struct{ Job []restJob }
	if json.Unmarshal([]byte(answer), &many) == nil && len(many.Job) == 1 {
		one.Job = many.Job[0]
	} else if err := json.Unmarshal([]byte(answer), &one); err != nil {
		return restJob{}, fmt.Errorf("answer %q: %w", answer, err)
	}
	if one.Job.ID == "" || !strings.HasPrefix(one.Job.Status, "2") {
		return restJob{}, fmt.Errorf("answer %q", answer)
	}
	return one.Job, nil
}

func (r *rest) await(ctx context.Context, o *Outcome) error {
	question, err := json.Marshal(map[string]any{"job": []map[string]string{{"id": o.ID}}})
	if err != nil {
		return err
	}
	for {
		answer, err := r.do(ctx, "POST", "/jobs?action=status", "application/json", string(bytes.TrimSpace(question)))
		if err != nil {
			return err
		}
		job, err := only(answer)
		if err != nil {
			return err
		}
		switch o.State = job.State; job.State {
		case "FINISHED", "FAILED", "KILLED", "WIPED":
			return nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the job is %s: %w", o.State, ctx.Err())
		}
	}
}
