package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/url"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/grange-project/grange/internal/farm"
)

// Trip is a browser's way to its issuer and back. The browser keeps it meanwhile; nothing is kept here.
type Trip struct {
	Issuer   string
	State    string // comes back with the browser
	Nonce    string // comes back in the token
	Verifier string // of PKCE: shown when the code is exchanged
}

// Begin is where a browser goes, and what it must bring back.
func (i *Issuer) Begin(ctx context.Context, redirect string) (to string, trip Trip, err error) {
	k, err := i.current(ctx)
	if err != nil {
		return "", Trip{}, err
	}
	// each has 256 bits
	trip = Trip{Issuer: i.Name, State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(),
		Verifier: oauth2.GenerateVerifier()}
	return i.oauth(k, redirect).AuthCodeURL(trip.State, oidc.Nonce(trip.Nonce),
		oauth2.S256ChallengeOption(trip.Verifier)), trip, nil
}

// End exchanges the code that a browser brought back, and returns what the issuer says of its user. Each issuer has a
// redirect of its own, so that none is sent a code of another one.
func (i *Issuer) End(ctx context.Context, trip Trip, back url.Values, redirect string) (farm.Claims, error) {
	k, err := i.current(ctx)
	if err != nil {
		return farm.Claims{}, err
	}
	if from := back.Get("iss"); from != i.URL && (from != "" || k.named) {
		return farm.Claims{}, i.refuse(fmt.Errorf("the answer is of issuer %.200q", from))
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, i.http.client), askTime)
	defer cancel()
	answer, err := i.oauth(k, redirect).Exchange(ctx, back.Get("code"), oauth2.VerifierOption(trip.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.ErrorCode != "" {
		return farm.Claims{}, i.refuse(fmt.Errorf("the issuer does not take the code: %.100s", refused.ErrorCode))
	}
	if err != nil {
		return farm.Claims{}, i.down(err)
	}
	text, ok := answer.Extra("id_token").(string)
	if !ok {
		return farm.Claims{}, i.down(errors.New("it sent no identity token"))
	}
	token, err := i.verify(ctx, text, i.ClientID)
	if err != nil {
		return farm.Claims{}, err
	}
	if err := i.meant(token, i.ClientID); err != nil {
		return farm.Claims{}, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(trip.Nonce)) != 1 {
		return farm.Claims{}, i.refuse(errors.New("it was made for another sign-in"))
	}
	claims, err := i.signIn(token)
	if err == nil && i.UserInfo {
		err = i.more(ctx, k, answer, &claims)
	}
	return claims, err
}

// more adds what the issuer says beside the token. What the token says goes before.
func (i *Issuer) more(ctx context.Context, k *known, answer *oauth2.Token, claims *farm.Claims) error {
	info, err := k.provider.UserInfo(ctx, oauth2.StaticTokenSource(answer))
	if err != nil {
		return i.down(fmt.Errorf("userinfo: %w", err))
	}
	if info.Subject != claims.Subject {
		return i.refuse(errors.New("userinfo is about another subject"))
	}
	all := map[string]any{}
	if err := info.Claims(&all); err != nil {
		return i.down(fmt.Errorf("userinfo: %w", err))
	}
	maps.Copy(all, claims.All)
	claims.All = all
	return nil
}
