package oidc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/grange-project/grange/internal/farm"
)

// Device signs a command line in, whose user says yes in a browser somewhere (RFC 8628). show is called once, with
// where and with what code. It returns an identity token, which nobody here has verified: the server does.
func Device(ctx context.Context, name, url, client string, scopes []string, roots *x509.CertPool,
	show func(where, code, whole string)) (string, error) {
	ctx = oidc.ClientContext(ctx, newBounded(roots).client)
	provider, err := oidc.NewProvider(ctx, url)
	if err != nil {
		return "", deviceError(name, err)
	}
	if provider.Endpoint().DeviceAuthURL == "" {
		return "", deviceError(name, errors.New("it signs no command lines in: no device_authorization_endpoint"))
	}
	o := oauth2.Config{ClientID: client, Endpoint: provider.Endpoint(), Scopes: scopes}
	began, err := o.DeviceAuth(ctx)
	if err != nil {
		return "", deviceError(name, err)
	}
	show(began.VerificationURI, began.UserCode, began.VerificationURIComplete)
	answer, err := o.DeviceAccessToken(ctx, began)
	if err != nil {
		return "", deviceError(name, err)
	}
	token, ok := answer.Extra("id_token").(string)
	if !ok {
		return "", deviceError(name, errors.New("it sent no identity token"))
	}
	return token, nil
}

func deviceError(name string, err error) error {
	said := err.Error()
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.ErrorCode != "" {
		said = refused.ErrorCode + " " + refused.ErrorDescription
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeIssuerDown,
		Message: fmt.Sprintf("issuer %s does not sign you in: %.300s", name, farm.Printable(said)),
		Hint:    "run `grange login` again; or use a token: `grange token create` where you are known"}
}
