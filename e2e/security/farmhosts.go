package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/pki"
)

// victim is the host that standalone starts with.
const victim = "first-00001"

// otherCell is a cell with an administrator of its own, who has nothing to say in the other one.
const otherCell = standaloneFarm + `
[cells.other]
broker = "grange"

[users.cyd]

[[grants]]
user = "cyd"
role = "admin"
cell = "other"
`

// machineID is a machine-id as hosts send it: whoever reads /etc/machine-id can make it.
func machineID(text string) string {
	mac := hmac.New(sha256.New, []byte(text))
	mac.Write([]byte("grange host"))
	return hex.EncodeToString(mac.Sum(nil))
}

// as runs a command with a user's token.
func (a *standalone) as(ctx context.Context, user string, args ...string) (string, error) {
	token, err := a.grange(ctx, "token", "create", "--user", user)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(a.path(user+".secret"), []byte(token), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, a.program, args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER=unix://"+a.path("server.sock"),
		"GRANGE_TOKEN_FILE="+a.path(user+".secret"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("grange %s: %w: %s", strings.Join(args, " "), err, &problem)
	}
	return string(out), nil
}

// enrol joins by hand, and returns the identity that it gets.
func (a *standalone) enrol(ctx context.Context, token, name, machine string, replace bool) (id tls.Certificate,
	answer string, err error) {
	key, err := pki.NewKey()
	if err != nil {
		return id, "", err
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		return id, "", err
	}
	r := fleet.EnrolRequest{Token: strings.TrimSpace(token), CSR: csr, Name: name, MachineID: machineID(machine),
		Replace: replace, Now: time.Now()}
	status, text, err := a.ask(ctx, a.client(), http.MethodPost, fleet.RouteEnrol, r)
	if err != nil || status != http.StatusOK {
		return id, string(text), err
	}
	var got fleet.EnrolAnswer
	if err := json.Unmarshal(text, &got); err != nil {
		return id, "", err
	}
	id, err = tls.X509KeyPair(got.Certificate, key)
	return id, "", err
}

// ask sends a host's request.
func (a *standalone) ask(ctx context.Context, client *http.Client, method, path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url()+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set(fleet.CapabilityHeader, strconv.Itoa(fleet.Capability))
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// withSecret starts a farm with the VM that secretVM makes.
func (s *site) withSecret(ctx context.Context) (*standalone, string, error) {
	a, err := s.standalone(ctx)
	if err != nil {
		return nil, "", err
	}
	vm, err := a.secretVM(ctx)
	if err != nil {
		a.close()
	}
	return a, vm, err
}

// secretVM makes a VM on the victim whose user data nobody else shall read, and returns its ID.
func (a *standalone) secretVM(ctx context.Context) (string, error) {
	if err := os.WriteFile(a.path("user-data"), []byte("#cloud-config\npassword: "+secretWord+"\n"),
		0o600); err != nil {
		return "", err
	}
	if _, err := a.grange(ctx, "vm", "create", "--project", "people", "--name", "db", "--image", "micro", "--shape",
		"tiny", "--cell", "general", "--user-data", a.path("user-data")); err != nil {
		return "", err
	}
	var vm struct{ ID, State string }
	err := await(ctx, 30*time.Second, func() error {
		text, err := a.grange(ctx, "vm", "show", "--json", "people/db")
		if err == nil {
			err = json.Unmarshal([]byte(text), &vm)
		}
		if err == nil && vm.State != "running" {
			err = errors.New("the VM is " + vm.State)
		}
		return err
	})
	return vm.ID, err
}

const secretWord = "hunter2"

// learns speaks as a host that has a VM, and returns what it is sent of it.
func (a *standalone) learns(ctx context.Context, id tls.Certificate, vm string) (string, error) {
	client := a.client(id)
	facts := &fleet.Facts{Capability: fleet.Capability, Instance: "hostile", Boot: "hostile", Now: time.Now(),
		Topology: fleet.Topology{Online: "0-3"}}
	r := fleet.Report{Instance: "hostile", Facts: facts,
		VMs: []fleet.Observed{{ID: vm, State: "running", Since: time.Now()}}}
	if status, text, err := a.ask(ctx, client, http.MethodPost, fleet.RouteReport, r); err != nil ||
		status != http.StatusOK {
		return "", fmt.Errorf("report: %d %s %w", status, text, err)
	}
	status, text, err := a.ask(ctx, client, http.MethodGet, fleet.RouteWanted+"?instance=hostile", nil)
	if err != nil || status != http.StatusOK {
		return "", fmt.Errorf("wanted: %d %s %w", status, text, err)
	}
	var list fleet.WantedList
	if err := json.Unmarshal(text, &list); err != nil {
		return "", err
	}
	for _, w := range list.VMs {
		if w.ID == vm {
			return fmt.Sprintf("%+v, user data %q", w, w.UserData), nil
		}
	}
	return "", nil
}
