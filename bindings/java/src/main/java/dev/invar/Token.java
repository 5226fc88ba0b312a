package dev.invar;

/**
 * One generated token.
 *
 * @param id its number in the vocabulary
 * @param index 0 for the first generated token
 * @param text the text that it completes, whole characters; "" while a character is incomplete
 */
public record Token(int id, long index, String text) {}
